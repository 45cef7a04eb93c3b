package link

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
)

// genList draws a list, which is nil if empty, as after decoding.
func genList[T any](t *rapid.T, name string, gen func(*rapid.T) T) []T {
	list := rapid.SliceOfN(rapid.Custom(gen), 0, 4).Draw(t, name)
	if len(list) == 0 {
		return nil
	}
	return list
}

func genOptional[T any](t *rapid.T, name string, gen func(*rapid.T) T) *T {
	if !rapid.Bool().Draw(t, name+"?") {
		return nil
	}
	v := gen(t)
	return &v
}

func genText(t *rapid.T) string {
	return strings.ToValidUTF8(rapid.StringN(0, 20, 80).Draw(t, "text"), "?")
}

// genPlainText draws a text without control characters.
func genPlainText(t *rapid.T) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, genText(t))
}

// genArtifactName returns a valid name of an artifact with those characters of text that may be in it. Different texts have different names.
func genArtifactName(t *rapid.T, text string) string {
	name := rapid.SampledFrom([]string{"", "dir/", "d/é/"}).Draw(t, "directory") + strings.Map(func(r rune) rune {
		if r == '/' || muster.CheckArtifactName(string(r)) != nil && r != '.' {
			return '?'
		}
		return r
	}, text)
	if muster.CheckArtifactName(name) != nil { // such as a drive letter
		return hex.EncodeToString([]byte(text))
	}
	return name
}

func genAttempt(t *rapid.T) muster.AttemptID {
	return muster.AttemptID{
		Task: muster.TaskID{
			Job: muster.JobID(rapid.Int64Range(1, 1<<50).Draw(t, "job")),
			Num: rapid.IntRange(0, muster.MaxTasks).Draw(t, "num"),
		},
		N: rapid.IntRange(1, 1<<31-1).Draw(t, "n"),
	}
}

func genTime(t *rapid.T) muster.Time {
	return muster.Time(rapid.Int64Range(1, 4e12).Draw(t, "time"))
}

func genHash(t *rapid.T) string { return rapid.StringMatching(`[0-9a-f]{64}`).Draw(t, "hash") }

func genSize(t *rapid.T) int64 { return rapid.Int64Range(0, 1<<50).Draw(t, "size") }

func genReason(t *rapid.T) muster.Reason { return rapid.SampledFrom(muster.Reasons).Draw(t, "reason") }

func genReport(t *rapid.T) muster.Report {
	name := uuids("a")
	return muster.Report{
		Attempt: genAttempt(t), Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"), Reason: genReason(t), Message: genText(t),
		ExitCode: genOptional(t, "exit", func(t *rapid.T) int { return rapid.IntRange(-1, 255).Draw(t, "exit") }),
		Result:   rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a":[1,"}"]}`), json.RawMessage(`0.5`), json.RawMessage(`"<é\""`)}).Draw(t, "result"),
		Artifacts: genList(t, "artifacts", func(t *rapid.T) muster.Artifact {
			return muster.Artifact{Name: genArtifactName(t, name(t)), Size: genSize(t), SHA256: genHash(t),
				CID: rapid.SampledFrom([]string{"", "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o"}).Draw(t, "cid")}
		}),
		Usage: genOptional(t, "usage", func(t *rapid.T) muster.Usage {
			return muster.Usage{
				WallSeconds: rapid.Float64Range(0, 1e6).Draw(t, "wall"), MemoryPeak: muster.Size(genSize(t)), DiskPeak: muster.Size(genSize(t)),
				PIDsPeak: rapid.IntRange(0, 99).Draw(t, "pids"), GPUAvg: 0.5, GPUTempPeak: rapid.Float64Range(-40, 120).Draw(t, "temperature"), EnergyWh: 1.25,
			}
		}),
		Image:   rapid.SampledFrom([]string{"", "docker.io/library/python@sha256:" + genHash(t), genText(t)}).Draw(t, "image"),
		LogSize: genSize(t), StartedAt: genTime(t), FinishedAt: genTime(t),
	}
}

func genGoodbye(t *rapid.T) Goodbye {
	return Goodbye{Code: rapid.SampledFrom(goodbyes).Draw(t, "code"), Message: genText(t)}
}

func genSpec(t *rapid.T) muster.TaskSpec {
	return muster.TaskSpec{
		Name: genText(t), Kind: "process", Env: map[string]string{"A": genText(t)}, Timeout: muster.Duration(time.Minute),
		Resources: muster.Request{PIDs: rapid.IntRange(0, 9).Draw(t, "pids")},
		Checkpoint: genOptional(t, "checkpoint", func(t *rapid.T) muster.Checkpoint {
			return muster.Checkpoint{Path: genText(t), Every: muster.Duration(time.Second), Signal: "SIGUSR1"}
		}),
		Gang: genOptional(t, "gang", func(t *rapid.T) muster.Gang {
			return muster.Gang{Size: rapid.IntRange(1, 9).Draw(t, "size"), OnLoss: muster.GangEnd}
		}),
		Launcher: "torchrun", NProcPerNode: 2,
		Image: "ghcr.io/acme/train:" + genText(t), Isolation: rapid.SampledFrom([]string{"", "container", "process", "auto"}).Draw(t, "isolation"),
		Network: rapid.SampledFrom([]string{"", "none", "bridge", "allowlist"}).Draw(t, "network"), AllowHosts: genList(t, "hosts", genText),
		Container: genOptional(t, "container", func(t *rapid.T) muster.Container {
			return muster.Container{
				Entrypoint: rapid.SampledFrom([][]string{nil, {}, {"/bin/sh", "-c"}}).Draw(t, "entrypoint"), // empty is not absent
				Workdir:    genText(t), User: genText(t), Pull: "always", ShmSize: muster.Size(genSize(t)), ReadOnly: rapid.Bool().Draw(t, "readonly"),
				Capabilities: genList(t, "capabilities", genText),
				Mounts: genList(t, "mounts", func(t *rapid.T) muster.Mount {
					return muster.Mount{Source: genText(t), Target: genText(t), ReadOnly: rapid.Bool().Draw(t, "ro")}
				}),
			}
		}),
	}
}

func genLogAck(t *rapid.T) LogAck {
	pause := rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 5 * time.Second}).Draw(t, "pause")
	return LogAck{Attempt: genAttempt(t), Size: genSize(t), Pause: muster.Duration(pause)}
}

func genToServer(t *rapid.T) *ToServer {
	f := &ToServer{
		Ready:    genOptional(t, "ready", func(t *rapid.T) Ready { return Ready{Constrained: genText(t)} }),
		Offer:    genOptional(t, "offer", genOffer),
		Saved:    genList(t, "saved", func(t *rapid.T) Saved { return Saved{Attempt: genAttempt(t), SHA256: genHash(t)} }),
		Accepted: genList(t, "accepted", genAttempt),
		Rejected: genList(t, "rejected", func(t *rapid.T) Rejected {
			return Rejected{Attempt: genAttempt(t), Message: genText(t), Constrained: rapid.Bool().Draw(t, "constrained")}
		}),
		Started: genList(t, "started", func(t *rapid.T) Started { return Started{Attempt: genAttempt(t), At: genTime(t)} }),
		Progress: genList(t, "progress", func(t *rapid.T) muster.Progress {
			return muster.Progress{
				Attempt: genAttempt(t), Step: genOptional(t, "step", genText),
				Progress: genOptional(t, "p", func(t *rapid.T) float64 { return rapid.Float64Range(0, 1).Draw(t, "p") }),
				Metrics:  map[string]float64{"loss" + genPlainText(t): rapid.Float64Range(-1e9, 1e9).Draw(t, "metric")},

				Artifacts: rapid.SampledFrom([][]muster.Artifact{nil, {{Name: "live/é.png", Size: 7, SHA256: genHash(t)}, {Name: "live/a", SHA256: genHash(t)}}}).Draw(t, "live"),
			}
		}),
		Logs: genList(t, "logs", func(t *rapid.T) LogChunk {
			return LogChunk{Attempt: genAttempt(t), Offset: genSize(t), Data: rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "data")}
		}),
		Finished: genList(t, "finished", genReport),
		Renew: genOptional(t, "renew", func(t *rapid.T) Renew {
			return Renew{Held: genList(t, "held", genAttempt), Load: &muster.Load{CPU: 0.5, Memory: 7, Disk: genOptional(t, "disk", genDiskLoad), GPUs: genList(t, "gpus", genGPULoad())}}
		}),
		Ping:    rapid.Bool().Draw(t, "ping"),
		Goodbye: genOptional(t, "goodbye", genGoodbye),
	}
	return f
}

// uuids returns a generator of unique names.
func uuids(prefix string) func(*rapid.T) string {
	n := 0
	return func(t *rapid.T) string {
		n++
		return prefix + strconv.Itoa(n) + genPlainText(t)
	}
}

func genDiskLoad(t *rapid.T) muster.DiskLoad {
	return muster.DiskLoad{Free: muster.Size(genSize(t)), Total: muster.Size(genSize(t)), Low: rapid.Bool().Draw(t, "low")}
}

func genGPULoad() func(*rapid.T) muster.GPULoad {
	uuid := uuids("GPU-")
	return func(t *rapid.T) muster.GPULoad {
		return muster.GPULoad{
			UUID: uuid(t), Utilization: genOptional(t, "util", func(t *rapid.T) float64 { return rapid.Float64Range(0, 1).Draw(t, "util") }),
			Memory:      genOptional(t, "vram", func(t *rapid.T) muster.Size { return muster.Size(genSize(t)) }),
			Temperature: genOptional(t, "temp", func(t *rapid.T) float64 { return rapid.Float64Range(-40, 120).Draw(t, "temp") }),
			Power:       genOptional(t, "power", func(t *rapid.T) float64 { return rapid.Float64Range(0, 900).Draw(t, "power") }),
		}
	}
}

func genResources(t *rapid.T) muster.Resources {
	uuid := uuids("GPU-")
	return muster.Resources{CPUs: 4, Memory: muster.Size(genSize(t)), Slots: 8, MaxTasks: rapid.IntRange(0, 2).Draw(t, "max tasks"), GPUs: genList(t, "gpus", func(t *rapid.T) muster.GPU {
		return muster.GPU{UUID: uuid(t), Vendor: "nvidia", Memory: muster.Size(genSize(t)), MIG: genPlainText(t), Parent: genPlainText(t), Quarantined: genText(t)}
	})}
}

// genAllow draws lists that are absent, which allow all, and empty, which allow nothing.
func genAllow(t *rapid.T) *muster.Allow {
	list := func(name string) []string {
		return rapid.SampledFrom([][]string{nil, {}, {"a*", genText(t)}}).Draw(t, name)
	}
	return genOptional(t, "allow", func(t *rapid.T) muster.Allow {
		return muster.Allow{
			Images: list("images"), Users: list("users"), Mounts: list("mounts"), Env: list("env"), HostNetwork: rapid.Bool().Draw(t, "host network"),
		}
	})
}

func genLacks(t *rapid.T) []string {
	return genList(t, "lacks", func(t *rapid.T) string {
		return rapid.SampledFrom(slices.Concat(muster.SpecFeatures, muster.RunFeatures)).Draw(t, "feature")
	})
}

func genProjects(t *rapid.T) []string {
	return genList(t, "projects", func(t *rapid.T) string { return rapid.StringMatching("[a-zé ]{0,20}").Draw(t, "project") })
}

func genOwnKinds(t *rapid.T) json.RawMessage {
	return rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`[]`), json.RawMessage(`[{"name":"resize","about":"\u003cé\"\u0000"},7]`)}).Draw(t, "own kinds")
}

func genOffer(t *rapid.T) muster.Offer {
	return muster.Offer{
		Tags: genList(t, "tags", genPlainText), Kinds: genList(t, "kinds", genPlainText), Resources: genResources(t), OwnKinds: genOwnKinds(t),
		Allow: genAllow(t), Lacks: genLacks(t), Projects: genProjects(t),
	}
}

func genHello(t *rapid.T) *Hello {
	return &Hello{
		Version: Version, Worker: "w" + muster.WorkerID(genPlainText(t)), Name: genPlainText(t), Build: genPlainText(t),
		Labels: map[string]string{"zone": genPlainText(t)}, Price: rapid.Float64Range(0, 100).Draw(t, "price"), Offer: genOffer(t),
		Address: rapid.SampledFrom([]string{"", "10.0.0.7", "box-1.lan", "fe80::1%eth0"}).Draw(t, "address"),
		Held:    genList(t, "held", genAttempt), Stale: genList(t, "stale", genAttempt), Constrained: genText(t),
	}
}

func genToWorker(t *rapid.T) *ToWorker {
	return &ToWorker{
		Specs: genList(t, "specs", func(t *rapid.T) GroupSpec {
			return GroupSpec{Ref: rapid.IntRange(1, 99).Draw(t, "ref"), UID: rapid.StringMatching("[a-z0-9]{1,20}").Draw(t, "uid"), Name: genText(t), Spec: genSpec(t)}
		}),
		Assign: genList(t, "assign", func(t *rapid.T) Assign {
			a := Assign{
				Attempt: genAttempt(t), Ref: rapid.IntRange(1, 99).Draw(t, "ref"), Element: genText(t), Spec: genOptional(t, "spec", genSpec),
				Inputs: genList(t, "inputs", func(t *rapid.T) muster.InputFile {
					return muster.InputFile{Path: "p" + genText(t), SHA256: genHash(t), Size: genSize(t)}
				}),
			}
			if rapid.Bool().Draw(t, "checkpoint") {
				a.Checkpoint = genHash(t)
			}
			a.Gang = genOptional(t, "gang", func(t *rapid.T) muster.Membership {
				size := rapid.IntRange(1, 64).Draw(t, "size")
				return muster.Membership{Rank: rapid.IntRange(0, size-1).Draw(t, "rank"), Size: size, Master: "10.0.0.7", Port: rapid.IntRange(1, 1<<16-1).Draw(t, "port")}
			})
			switch rapid.IntRange(0, 2).Draw(t, "grant") {
			case 1:
				a.Grant.Slots = 1
			case 2:
				a.Grant = muster.Grant{CPUs: 1.5, Memory: muster.Size(genSize(t)), GPUs: []string{genText(t)}, GPUMemory: 5, Slots: 2, PIDs: 9}
			}
			return a
		}),
		Cancel: genList(t, "cancel", func(t *rapid.T) Cancel {
			return Cancel{Attempt: genAttempt(t), Reason: genReason(t), Drop: rapid.Bool().Draw(t, "drop")}
		}),
		FinishedAck: genList(t, "acks", genAttempt),
		LogAck:      genList(t, "logacks", genLogAck),
		Drain:       rapid.Bool().Draw(t, "drain"),
		Heal:        rapid.SampledFrom([][]string{nil, {HealAll}, {"GPU-1", "GPU-2"}}).Draw(t, "heal"),
		Exec: genList(t, "exec", func(t *rapid.T) Exec {
			return Exec{ID: rapid.StringMatching(`[0-9A-Za-z_-]{16,64}`).Draw(t, "id"), Attempt: genAttempt(t)}
		}),
		Approved: rapid.Bool().Draw(t, "approved"),
		Pong:     rapid.Bool().Draw(t, "pong"),
		Goodbye:  genOptional(t, "goodbye", genGoodbye),
	}
}

func genWelcome(t *rapid.T) *Welcome {
	return &Welcome{SharedName: rapid.Bool().Draw(t, "shared name"), Pending: rapid.Bool().Draw(t, "pending"), Heartbeat: muster.Duration(10 * time.Second), Keep: genList(t, "keep", genLogAck), Stop: genList(t, "stop", genAttempt)}
}

// assigns returns a frame of a busy server.
func assigns(n int) *ToWorker {
	f := &ToWorker{}
	for i := range n {
		f.Assign = append(f.Assign, Assign{Attempt: attempt(i), Ref: 1, Element: "12345", Grant: muster.Grant{Slots: 1}})
	}
	return f
}

// finisheds returns a frame of a busy worker.
func finisheds(n int) *ToServer {
	f := &ToServer{}
	for i := range n {
		f.Finished = append(f.Finished, muster.Report{
			Attempt: attempt(i), Outcome: muster.AttemptSucceeded, ExitCode: new(int), StartedAt: 1_700_000_000_123, FinishedAt: 1_700_000_000_456,
		})
	}
	return f
}

func attempt(i int) muster.AttemptID {
	return muster.AttemptID{Task: muster.TaskID{Job: 17, Num: i}, N: 1}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}
