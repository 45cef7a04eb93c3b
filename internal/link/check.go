package link

import (
	"cmp"
	"encoding/json"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// outcomes are the outcomes that a Report may have. Rejected is a message of its own.
var outcomes = []muster.Outcome{
	muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptLost,
}

// goodbyes are the codes that a Goodbye may have.
var goodbyes = []muster.Code{
	"", muster.Invalid, muster.InvalidSpec, muster.Unauthenticated, muster.Forbidden, muster.NotFound, muster.Conflict,
	muster.TooLarge, muster.Unavailable, muster.StorageFull, muster.Internal,
}

// check is called by Encode and by Decode.
func (f *ToServer) check() error {
	if (f.Seq == 1) != (f.Hello != nil) {
		return inField("hello", fieldErrorf("belongs in the first frame, and only there"))
	}
	return cmp.Or(
		checkOptional("hello", f.Hello, checkHello),
		checkOptional("ready", f.Ready, func(r *Ready) error { return checkLength("constrained", r.Constrained, maxReason) }),
		checkOptional("offer", f.Offer, func(o *muster.Offer) error { return checkDescription(o, nil) }),
		checkEach("accepted", f.Accepted, checkAttempt),
		checkEach("rejected", f.Rejected, func(r *Rejected) error { return inField("attempt", checkAttempt(&r.Attempt)) }),
		checkEach("started", f.Started, checkStarted),
		checkEach("progress", f.Progress, checkProgress),
		checkLogs(f.Logs),
		checkEach("saved", f.Saved, checkSaved),
		checkEach("finished", f.Finished, checkReport),
		checkOptional("renew", f.Renew, checkRenew),
		checkOptional("goodbye", f.Goodbye, checkGoodbye),
	)
}

func (f *ToWorker) check() error {
	if f.Seq == 1 && f.Welcome == nil && f.Goodbye == nil && !f.Ping || f.Seq > 2 && f.Welcome != nil {
		return inField("welcome", fieldErrorf("belongs in the first frame, or in the one after a first ping"))
	}
	return cmp.Or(
		checkOptional("welcome", f.Welcome, checkWelcome),
		checkEach("specs", f.Specs, checkGroupSpec),
		checkEach("assign", f.Assign, checkAssign),
		checkEach("cancel", f.Cancel, checkCancel),
		checkEach("finished_ack", f.FinishedAck, checkAttempt),
		checkEach("log_ack", f.LogAck, checkLogAck),
		checkHeal(f.Heal),
		checkEach("exec", f.Exec, checkExec),
		checkOptional("goodbye", f.Goodbye, checkGoodbye),
	)
}

func checkOptional[T any](field string, v *T, check func(*T) error) error {
	if v == nil {
		return nil
	}
	return inField(field, check(v))
}

func checkEach[T any](field string, list []T, check func(*T) error) error {
	for i := range list {
		if err := check(&list[i]); err != nil {
			return inField(field, inField("["+strconv.Itoa(i)+"]", err))
		}
	}
	return nil
}

// checkNumber refuses NaN, infinity and numbers below zero.
func checkNumber[T int | int64 | float64](field string, v T) error {
	if v < 0 || math.IsNaN(float64(v)) || math.IsInf(float64(v), 1) {
		return inField(field, fieldErrorf("is %v: it must be 0 or more", v))
	}
	return nil
}

// checkAtMost is checkNumber with a limit.
func checkAtMost[T int | int64 | float64](field string, v, limit T) error {
	if v > limit {
		return inField(field, fieldErrorf("is %v: the most is %v", v, limit))
	}
	return checkNumber(field, v)
}

// checkFinite refuses NaN and infinity, which JSON cannot express.
func checkFinite(field string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return inField(field, fieldErrorf("is %v: it must be finite", v))
	}
	return nil
}

// checkCount checks the number of entries of a list or a map.
func checkCount(field string, n, limit int) error {
	if n > limit {
		return inField(field, fieldErrorf("has %d entries: the most is %d", n, limit))
	}
	return nil
}

// checkLength checks only the length of a text, which may come from any tool.
func checkLength[T string | json.RawMessage](field string, s T, limit int) error {
	if len(s) > limit {
		return inField(field, fieldErrorf("has %d bytes: the most is %d", len(s), limit))
	}
	return nil
}

// checkUnique refuses a missing value, and one that is in seen. It adds the value to seen.
func checkUnique(field string, seen map[string]bool, value string) error {
	switch {
	case value == "":
		return inField(field, fieldErrorf("is missing"))
	case seen[value]:
		return inField(field, fieldErrorf("is %q, which is a duplicate", value))
	}
	seen[value] = true
	return nil
}

func checkAttempt(a *muster.AttemptID) error {
	if a.Task.Job < 1 || a.Task.Num < 0 || a.Task.Num > muster.MaxTasks || a.N < 1 || a.N > math.MaxInt32 {
		return fieldErrorf("is missing or not an attempt id")
	}
	return nil
}

// maxUID is the most bytes of a job's UID.
const maxUID = 64

func checkGroupSpec(s *GroupSpec) error {
	if err := checkRef(s.Ref); err != nil {
		return err
	}
	// The UID becomes part of a path on the worker.
	for _, c := range []byte(s.UID) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return inField("uid", fieldErrorf("has characters other than a-z and 0-9"))
		}
	}
	if s.UID == "" || len(s.UID) > maxUID {
		return inField("uid", fieldErrorf("is missing or longer than %d bytes", maxUID))
	}
	return checkOptional("signature", s.Signature, func(sig *muster.Signature) error {
		return cmp.Or(checkLength("statement", sig.Statement, muster.MaxStatement), checkLength("signature", sig.Armor, muster.MaxArmor))
	})
}

func checkRef(ref int) error {
	if ref < 1 {
		return inField("ref", fieldErrorf("is %d: it must be 1 or more", ref))
	}
	return nil
}

// CheckAddress returns an error unless s is a host name, an IP address, or empty.
func CheckAddress(s string) error {
	if len(s) > maxHost {
		return fieldErrorf("has %d bytes: the most is %d", len(s), maxHost)
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:%", rune(c)) {
			return fieldErrorf("is %q: it must be a host name or an IP address", s)
		}
	}
	return nil
}

func checkWelcome(w *Welcome) error {
	if w.Heartbeat < minHeartbeat || w.Heartbeat > maxHeartbeat {
		return inField("heartbeat", fieldErrorf("is %s: it must be from %s to %s", w.Heartbeat, minHeartbeat, maxHeartbeat))
	}
	return cmp.Or(checkEach("keep", w.Keep, checkLogAck), checkEach("stop", w.Stop, checkAttempt))
}

func checkLogAck(a *LogAck) error {
	if a.Pause < 0 {
		return inField("pause", fieldErrorf("is %s: it must not be negative", a.Pause))
	}
	return cmp.Or(inField("attempt", checkAttempt(&a.Attempt)), checkNumber("size", a.Size))
}

func checkStarted(s *Started) error {
	if s.At <= 0 {
		return inField("at", fieldErrorf("is missing"))
	}
	return inField("attempt", checkAttempt(&s.Attempt))
}

func checkProgress(p *muster.Progress) error {
	if p.Progress != nil && !(*p.Progress >= 0 && *p.Progress <= 1) {
		return inField("progress", fieldErrorf("is %v: it must be from 0 to 1", *p.Progress))
	}
	step := checkOptional("step", p.Step, func(s *string) error { return checkLength("", *s, MaxStep) })
	if err := cmp.Or(step, checkCount("metrics", len(p.Metrics), maxMetrics)); err != nil {
		return err
	}
	for name, v := range p.Metrics {
		if err := cmp.Or(checkText("", name, maxText), checkFinite(name, v)); err != nil {
			return inField("metrics", err)
		}
	}
	return cmp.Or(checkLiveFiles(p.Artifacts), inField("attempt", checkAttempt(&p.Attempt)))
}

// checkLiveFiles checks the files that a task publishes while it runs.
func checkLiveFiles(list []muster.Artifact) error {
	if err := checkCount("artifacts", len(list), muster.MaxLiveFiles); err != nil {
		return err
	}
	seen := make(map[string]bool, len(list))
	return checkEach("artifacts", list, func(a *muster.Artifact) error {
		if dir, name := path.Split(a.Name); dir != muster.LiveDir+"/" || name == "" {
			return inField("name", fieldErrorf("is %.80q: it must be of a file in %s/", a.Name, muster.LiveDir))
		}
		return cmp.Or(checkArtifactName(a.Name), checkUnique("name", seen, a.Name), checkAtMost("size", a.Size, muster.MaxLiveFileSize), checkArtifact(a))
	})
}

// checkArtifacts checks the artifacts of a report: all of them can be files of one directory.
func checkArtifacts(list []muster.Artifact) error {
	if err := checkCount("artifacts", len(list), maxArtifacts); err != nil {
		return err
	}
	seen := make(map[string]bool, len(list))
	var paths []string // if some are in a directory
	err := checkEach("artifacts", list, func(a *muster.Artifact) error {
		if paths == nil && strings.Contains(a.Name, "/") {
			paths = make([]string, 0, len(list))
		}
		return cmp.Or(checkArtifactName(a.Name), checkUnique("name", seen, a.Name), checkArtifact(a))
	})
	if err != nil || paths == nil {
		return err
	}
	for i := range list {
		paths = append(paths, list[i].Name)
	}
	for _, i := range muster.ConflictingPaths(paths) {
		return inField("artifacts["+strconv.Itoa(i)+"].name", fieldErrorf("is %.80q, which is a file and a directory", list[i].Name))
	}
	return nil
}

func checkArtifactName(name string) error {
	if err := muster.CheckArtifactName(name); err != nil {
		return inField("name", fieldErrorf("is %.80q, which %v", name, err))
	}
	return nil
}

// cidPattern matches a CIDv0, and "" for no CID.
var cidPattern = lazyregexp.New(`^(Qm[1-9A-HJ-NP-Za-km-z]{44})?$`)

func checkArtifact(a *muster.Artifact) error {
	if !cidPattern.Get().MatchString(a.CID) {
		return inField("cid", fieldErrorf("is %q: it must be Qm and 44 characters of base 58", a.CID))
	}
	return cmp.Or(checkHash("sha256", a.SHA256), checkNumber("size", a.Size))
}

// CheckProgress returns the error with which every session refuses p, or nil.
func CheckProgress(p *muster.Progress) error { return inField("progress", checkProgress(p)) }

// CheckUsage returns the error with which every session refuses u, or nil.
func CheckUsage(u *muster.Usage) error { return inField("usage", checkUsage(u)) }

// CheckReport returns the error with which every session refuses r, or nil.
func CheckReport(r *muster.Report) error {
	if len(r.Result) > 0 && !json.Valid(r.Result) {
		return inField("report.result", fieldErrorf("is not JSON"))
	}
	return inField("report", checkReport(r))
}

func checkLogs(logs []LogChunk) error {
	sum := 0
	for i := range logs {
		sum += len(logs[i].Data)
	}
	if sum > MaxLogs {
		return inField("logs", fieldErrorf("has %d bytes: the most in one frame is %d", sum, MaxLogs))
	}
	return checkEach("logs", logs, func(c *LogChunk) error {
		return cmp.Or(inField("attempt", checkAttempt(&c.Attempt)), checkAtMost("offset", c.Offset, maxBytes), checkAtMost("segment", c.Segment, c.Offset),
			checkAtMost("kept", c.Kept, maxBytes), checkAtMost("to", c.To, maxBytes))
	})
}

func checkSaved(s *Saved) error {
	return cmp.Or(inField("attempt", checkAttempt(&s.Attempt)), checkHash("sha256", s.SHA256))
}

func checkReport(r *muster.Report) error {
	if err := inField("attempt", checkAttempt(&r.Attempt)); err != nil {
		return err
	}
	if !slices.Contains(outcomes, r.Outcome) {
		return inField("outcome", fieldErrorf("is %q: it must be one of %q", r.Outcome, outcomes))
	}
	err := cmp.Or(checkReason(r.Reason), checkLength("result", r.Result, muster.MaxResultSize), checkAtMost("log_size", r.LogSize, maxBytes))
	if err != nil {
		return err
	}
	if depthOf(r.Result) > maxResultDepth {
		return inField("result", fieldErrorf("is deeper than %d levels", maxResultDepth))
	}
	if r.FinishedAt <= 0 {
		return inField("finished_at", fieldErrorf("is missing"))
	}
	return cmp.Or(checkOptional("usage", r.Usage, checkUsage), checkArtifacts(r.Artifacts))
}

func checkUsage(u *muster.Usage) error {
	return cmp.Or(
		checkAtMost("wall_seconds", u.WallSeconds, maxUsageValue),
		checkAtMost("cpu_seconds", u.CPUSeconds, maxUsageValue),
		checkAtMost("cpu_avg", u.CPUAvg, maxUsageValue),
		checkAtMost("cpu_peak", u.CPUPeak, maxUsageValue),
		checkAtMost("gpu_avg", u.GPUAvg, maxUsageValue),
		checkAtMost("gpu_peak", u.GPUPeak, maxUsageValue),
		checkAtMost("power_avg", u.PowerAvg, maxUsageValue),
		checkAtMost("energy_wh", u.EnergyWh, maxUsageValue),
		checkAtMost("cost", u.Cost, maxUsageValue),
		checkNumber("memory_avg", int64(u.MemoryAvg)),
		checkNumber("memory_peak", int64(u.MemoryPeak)),
		checkNumber("disk_peak", int64(u.DiskPeak)),
		checkNumber("read_bytes", int64(u.ReadBytes)),
		checkNumber("write_bytes", int64(u.WriteBytes)),
		checkNumber("net_in", int64(u.NetIn)),
		checkNumber("net_out", int64(u.NetOut)),
		checkNumber("vram_peak", int64(u.VRAMPeak)),
		checkNumber("pids_peak", int64(u.PIDsPeak)),
		checkFinite("gpu_temp_peak", u.GPUTempPeak),
	)
}

func checkReason(r muster.Reason) error {
	if r != muster.NoReason && !slices.Contains(muster.Reasons, r) {
		return inField("reason", fieldErrorf("is %q, which is not a reason", r))
	}
	return nil
}

func checkHash(field, s string) error {
	if !muster.IsSHA256(s) {
		return inField(field, fieldErrorf("is %q: it must be 64 lower-case hex digits", s))
	}
	return nil
}

func checkRenew(r *Renew) error {
	return cmp.Or(checkOptional("load", r.Load, checkLoad), checkEach("held", r.Held, checkAttempt))
}

func checkAssign(a *Assign) error {
	if err := cmp.Or(inField("attempt", checkAttempt(&a.Attempt)), checkRef(a.Ref)); err != nil {
		return err
	}
	if err := inField("grant", checkGrant(&a.Grant)); err != nil {
		return err
	}
	if a.Checkpoint != "" {
		if err := checkHash("checkpoint", a.Checkpoint); err != nil {
			return err
		}
	}
	return cmp.Or(checkOptional("gang", a.Gang, checkGang), checkSecrets(a.Secrets), checkEach("inputs", a.Inputs, func(in *muster.InputFile) error {
		if in.Path == "" {
			return inField("path", fieldErrorf("is missing"))
		}
		return cmp.Or(checkHash("sha256", in.SHA256), checkNumber("size", in.Size))
	}))
}

// checkGrant refuses amounts that no worker offers: their sums could overflow.
func checkGrant(g *muster.Grant) error {
	if g.CPUs < 0 || g.Memory < 0 || g.Disk < 0 || g.Slots < 0 || g.GPUMemory < 0 || g.PIDs < 0 {
		return fieldErrorf("has an amount below zero")
	}
	err := cmp.Or(
		checkAtMost("cpus", g.CPUs, maxCPUs),
		checkAtMost("memory", int64(g.Memory), maxBytes),
		checkAtMost("disk", int64(g.Disk), maxBytes),
		checkAtMost("slots", g.Slots, maxSlots),
		checkAtMost("gpu_memory", int64(g.GPUMemory), maxBytes),
		checkAtMost("pids", g.PIDs, math.MaxInt32),
		checkCount("gpus", len(g.GPUs), maxGPUs),
	)
	if err != nil || len(g.GPUs) == 0 {
		return err
	}
	seen := make(map[string]bool, len(g.GPUs))
	return checkEach("gpus", g.GPUs, func(uuid *string) error {
		if seen[*uuid] {
			return fieldErrorf("is %.80q, which is a duplicate", *uuid)
		}
		seen[*uuid] = true
		return checkLength("", *uuid, maxText)
	})
}

func checkSecrets(list []muster.SecretValue) error {
	return cmp.Or(checkCount("secrets", len(list), muster.MaxTaskSecrets), checkEach("secrets", list, func(s *muster.SecretValue) error {
		if s.Name == "" || len(s.Value) == 0 {
			return fieldErrorf("has no name or no value")
		}
		return cmp.Or(checkLength("name", s.Name, muster.MaxNameSize), checkLength("value", string(s.Value), muster.MaxSecretSize))
	}))
}

func checkGang(g *muster.Membership) error {
	switch {
	case g.Size < 1 || g.Size > muster.MaxTasks:
		return inField("size", fieldErrorf("is %d: it must be from 1 to %d", g.Size, muster.MaxTasks))
	case g.Rank < 0 || g.Rank >= g.Size:
		return inField("rank", fieldErrorf("is %d: it must be from 0 to %d", g.Rank, g.Size-1))
	case g.Port < 1 || g.Port > math.MaxUint16:
		return inField("port", fieldErrorf("is %d: it must be from 1 to %d", g.Port, math.MaxUint16))
	case g.Master == "":
		return inField("master", fieldErrorf("is missing"))
	}
	return inField("master", CheckAddress(g.Master))
}

// checkHeal checks UUIDs of GPUs, or HealAll.
func checkHeal(list []string) error {
	return cmp.Or(checkCount("heal", len(list), maxGPUs), checkEach("heal", list, func(uuid *string) error {
		if n := len(*uuid); n < 1 || n > maxText {
			return fieldErrorf("has %d bytes: it must be from 1 to %d", n, maxText)
		}
		return nil
	}))
}

func checkCancel(c *Cancel) error {
	return cmp.Or(inField("attempt", checkAttempt(&c.Attempt)), checkReason(c.Reason))
}

var execIDPattern = lazyregexp.New(`^[0-9A-Za-z_-]{16,64}$`)

func checkExec(x *Exec) error {
	if !execIDPattern.Get().MatchString(x.ID) {
		return inField("id", fieldErrorf("is %q: it must be 16 to 64 letters, digits, - or _", x.ID))
	}
	return inField("attempt", checkAttempt(&x.Attempt))
}

func checkGoodbye(g *Goodbye) error {
	if !slices.Contains(goodbyes, g.Code) {
		return inField("code", fieldErrorf("is %q, which is not a code", g.Code))
	}
	return nil
}
