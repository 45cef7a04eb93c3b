package link

import (
	"encoding/json"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// outcomes are those that a Report may have. Rejected has a word of its own.
var outcomes = []muster.Outcome{
	muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptLost,
}

// goodbyes are the codes that a Goodbye may have.
var goodbyes = []muster.Code{
	"", muster.Invalid, muster.InvalidSpec, muster.Unauthenticated, muster.Forbidden, muster.NotFound, muster.Conflict,
	muster.TooLarge, muster.Unavailable, muster.StorageFull, muster.Internal,
}

// The most bytes of a word from outside that has no other bound than its frame's.
const (
	maxHost = 253 // of a host name (RFC 1035)
	maxUUID = 256
	maxName = 1024 // of a file that a task shows
)

// checkToServer checks what the types alone do not say, before a frame leaves
// and after it came.
func checkToServer(f *ToServer) error {
	if (f.Seq == 1) != (f.Hello != nil) {
		return within("hello", wrong("belongs in the first frame, and only there"))
	}
	if f.Hello != nil {
		if err := within("hello", checkHello(f.Hello)); err != nil {
			return err
		}
	}
	if f.Ready != nil {
		if err := within("ready", within("constrained", reason(f.Ready.Constrained))); err != nil {
			return err
		}
	}
	if f.Offer != nil {
		if err := within("offer", checkOffer(f.Offer)); err != nil {
			return err
		}
	}
	if err := within("accepted", each(f.Accepted, checkAttempt)); err != nil {
		return err
	}
	if err := within("rejected", each(f.Rejected, func(r *Rejected) error { return within("attempt", checkAttempt(&r.Attempt)) })); err != nil {
		return err
	}
	if err := within("started", each(f.Started, checkStarted)); err != nil {
		return err
	}
	if err := within("progress", each(f.Progress, checkProgress)); err != nil {
		return err
	}
	if err := within("logs", checkLogs(f.Logs)); err != nil {
		return err
	}
	if err := within("saved", each(f.Saved, checkSaved)); err != nil {
		return err
	}
	if err := within("finished", each(f.Finished, checkReport)); err != nil {
		return err
	}
	if f.Renew != nil {
		if err := within("renew", checkRenew(f.Renew)); err != nil {
			return err
		}
	}
	return within("goodbye", checkGoodbye(f.Goodbye))
}

// checkToWorker is checkToServer for the other direction.
func checkToWorker(f *ToWorker) error {
	if f.Seq == 1 && f.Welcome == nil && f.Goodbye == nil || f.Seq != 1 && f.Welcome != nil {
		return within("welcome", wrong("belongs in the first frame, and only there"))
	}
	if f.Welcome != nil {
		if err := within("welcome", checkWelcome(f.Welcome)); err != nil {
			return err
		}
	}
	if err := within("specs", each(f.Specs, checkGroupSpec)); err != nil {
		return err
	}
	if err := within("assign", each(f.Assign, checkAssign)); err != nil {
		return err
	}
	if err := within("cancel", each(f.Cancel, checkCancel)); err != nil {
		return err
	}
	if err := within("finished_ack", each(f.FinishedAck, checkAttempt)); err != nil {
		return err
	}
	if err := within("log_ack", each(f.LogAck, checkLogAck)); err != nil {
		return err
	}
	if err := within("heal", checkHeal(f.Heal)); err != nil {
		return err
	}
	return within("goodbye", checkGoodbye(f.Goodbye))
}

func each[T any](list []T, check func(*T) error) error {
	for i := range list {
		if err := check(&list[i]); err != nil {
			return within("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

func atLeast(n, least int64) error {
	if n < least {
		return wrong("is %d: it must be %d or more", n, least)
	}
	return nil
}

// finite refuses what JSON cannot say.
func finite(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return wrong("is %v: it must be a number", v)
	}
	return nil
}

// amount refuses what JSON cannot say, and amounts below zero.
func amount(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return wrong("is %v: it must be a number from 0", v)
	}
	return nil
}

func checkAttempt(a *muster.AttemptID) error {
	if a.Task.Job < 1 || a.Task.Num < 0 || a.Task.Num > muster.MaxTasks || a.N < 1 || a.N > math.MaxInt32 {
		return wrong("is missing or no attempt id")
	}
	return nil
}

func checkHello(h *Hello) error {
	if h.Worker == "" {
		return within("worker", wrong("is missing"))
	}
	if err := within("price", amount(h.Price)); err != nil {
		return err
	}
	if err := boundHello(h); err != nil {
		return err
	}
	if err := within("resources", checkResources(&h.Resources)); err != nil {
		return err
	}
	if err := within("own_kinds", checkOwnKinds(h.OwnKinds)); err != nil {
		return err
	}
	if err := within("address", checkAddress(h.Address)); err != nil {
		return err
	}
	if err := within("held", each(h.Held, checkAttempt)); err != nil {
		return err
	}
	return within("stale", each(h.Stale, checkAttempt))
}

// maxUID is the most bytes of a job's UID.
const maxUID = 64

func checkGroupSpec(s *GroupSpec) error {
	if err := within("ref", atLeast(int64(s.Ref), 1)); err != nil {
		return err
	}
	// It becomes part of a path on the worker.
	for _, c := range []byte(s.UID) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return within("uid", wrong("has characters other than a-z and 0-9"))
		}
	}
	if s.UID == "" || len(s.UID) > maxUID {
		return within("uid", wrong("is missing or longer than %d bytes", maxUID))
	}
	return nil
}

func checkOffer(o *Offer) error {
	if err := boundOffer(o, nil); err != nil {
		return err
	}
	if err := within("own_kinds", checkOwnKinds(o.OwnKinds)); err != nil {
		return err
	}
	return within("resources", checkResources(&o.Resources))
}

// checkOwnKinds checks that it is a list, if it is JSON. What is in it is looked at by those who use it.
func checkOwnKinds(raw json.RawMessage) error {
	switch {
	case len(raw) > MaxOwnKinds:
		return wrong("has %d bytes: the most is %d", len(raw), MaxOwnKinds)
	case len(raw) > 0 && raw[0] != '[':
		return wrong("is no list")
	case depthOf(raw) > maxDepth:
		return wrong("is deeper than %d levels", maxDepth)
	}
	return nil
}

// checkResources checks what a machine says that it has.
func checkResources(r *muster.Resources) error {
	if err := within("cpus", amount(r.CPUs)); err != nil {
		return err
	}
	if err := within("memory", atLeast(int64(r.Memory), 0)); err != nil {
		return err
	}
	if err := within("disk", atLeast(int64(r.Disk), 0)); err != nil {
		return err
	}
	if err := within("slots", atLeast(int64(r.Slots), 0)); err != nil {
		return err
	}
	if err := within("max_tasks", atLeast(int64(r.MaxTasks), 0)); err != nil {
		return err
	}
	return within("gpus", devices(r.GPUs, func(g *muster.GPU) (string, error) {
		return g.UUID, within("memory", atLeast(int64(g.Memory), 0))
	}))
}

// devices checks a list of what each belongs to one device: not too many, each with a
// UUID, and none twice.
func devices[T any](list []T, check func(*T) (uuid string, err error)) error {
	if len(list) > MaxGPUs {
		return wrong("lists %d devices: the most is %d", len(list), MaxGPUs)
	}
	seen := make(map[string]bool, len(list))
	return each(list, func(g *T) error {
		uuid, err := check(g)
		switch {
		case err != nil:
			return err
		case uuid == "":
			return within("uuid", wrong("is missing"))
		case seen[uuid]:
			return within("uuid", wrong("is %q, as of one before", uuid))
		}
		seen[uuid] = true
		return nil
	})
}

// checkAddress refuses what is neither a host name nor an IP address.
func checkAddress(s string) error {
	if len(s) > maxHost {
		return wrong("has %d bytes: the most is %d", len(s), maxHost)
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:%", rune(c)) {
			return wrong("is %q: it must be a host name or an IP address", s)
		}
	}
	return nil
}

func checkWelcome(w *Welcome) error {
	if w.Heartbeat <= 0 {
		return within("heartbeat", wrong("is %s: it must be more than 0", w.Heartbeat))
	}
	if err := within("keep", each(w.Keep, checkLogAck)); err != nil {
		return err
	}
	return within("stop", each(w.Stop, checkAttempt))
}

func checkLogAck(a *LogAck) error {
	if err := within("attempt", checkAttempt(&a.Attempt)); err != nil {
		return err
	}
	if a.Pause < 0 {
		return within("pause", wrong("is %s: it must not be negative", a.Pause))
	}
	return within("size", atLeast(a.Size, 0))
}

func checkStarted(s *Started) error {
	if s.At <= 0 {
		return within("at", wrong("is missing"))
	}
	return within("attempt", checkAttempt(&s.Attempt))
}

func checkProgress(p *muster.Progress) error {
	if p.Progress != nil && !(*p.Progress >= 0 && *p.Progress <= 1) {
		return within("progress", wrong("is %v: it must be from 0 to 1", *p.Progress))
	}
	if p.Step != nil && len(*p.Step) > MaxStep {
		return within("step", wrong("has %d bytes: the most is %d", len(*p.Step), MaxStep))
	}
	if len(p.Metrics) > MaxMetrics {
		return within("metrics", wrong("are %d: the most is %d", len(p.Metrics), MaxMetrics))
	}
	for name, v := range p.Metrics {
		if err := text(name, maxText); err != nil {
			return within("metrics", err)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return within("metrics", within(name, wrong("is %v, which is not a number", v)))
		}
	}
	if err := within("artifacts", checkLive(p.Artifacts)); err != nil {
		return err
	}
	return within("attempt", checkAttempt(&p.Attempt))
}

// checkLive checks what a task shows while it runs.
func checkLive(list []muster.Artifact) error {
	if len(list) > muster.MaxLiveFiles {
		return wrong("are %d: the most is %d", len(list), muster.MaxLiveFiles)
	}
	seen := make(map[string]bool, len(list))
	return each(list, func(a *muster.Artifact) error {
		dir, name := path.Split(a.Name)
		switch {
		case dir != muster.LiveDir+"/" || name == "" || len(a.Name) > maxName || !utf8.ValidString(name) || path.Clean(a.Name) != a.Name:
			return within("name", wrong("is %q: it must be of a file in %s/", a.Name, muster.LiveDir))
		case seen[a.Name]:
			return within("name", wrong("is %q, as of one before", a.Name))
		case a.Size > muster.MaxLiveFileSize:
			return within("size", wrong("is %d: the most is %d", a.Size, muster.MaxLiveFileSize))
		}
		seen[a.Name] = true
		return checkArtifact(a)
	})
}

// CheckAddress says what keeps s from being where other workers reach a worker, or nil.
func CheckAddress(s string) error { return checkAddress(s) }

// CheckProgress says what in p no session would carry, or nil.
func CheckProgress(p *muster.Progress) error { return within("progress", checkProgress(p)) }

// CheckUsage says what in u no session would carry, or nil.
func CheckUsage(u *muster.Usage) error { return within("usage", checkUsage(u)) }

// CheckReport says what in r no session would carry, or nil.
func CheckReport(r *muster.Report) error {
	if len(r.Result) > 0 && !json.Valid(r.Result) {
		return within("report.result", wrong("is not JSON"))
	}
	return within("report", checkReport(r))
}

func checkLogs(logs []LogChunk) error {
	sum := 0
	for i := range logs {
		sum += len(logs[i].Data)
	}
	if sum > MaxLogs {
		return wrong("have %d bytes: the most in one frame is %d", sum, MaxLogs)
	}
	return each(logs, func(c *LogChunk) error {
		if err := within("attempt", checkAttempt(&c.Attempt)); err != nil {
			return err
		}
		return within("offset", atLeast(c.Offset, 0))
	})
}

func checkSaved(s *Saved) error {
	if err := within("attempt", checkAttempt(&s.Attempt)); err != nil {
		return err
	}
	return within("sha256", checkHash(s.SHA256))
}

func checkReport(r *muster.Report) error {
	if err := within("attempt", checkAttempt(&r.Attempt)); err != nil {
		return err
	}
	if !slices.Contains(outcomes, r.Outcome) {
		return within("outcome", wrong("is %q: it must be one of %q", r.Outcome, outcomes))
	}
	if err := within("reason", checkReason(r.Reason)); err != nil {
		return err
	}
	if len(r.Result) > muster.MaxResultSize {
		return within("result", wrong("has %d bytes: the most is %d", len(r.Result), muster.MaxResultSize))
	}
	if err := within("log_size", atLeast(r.LogSize, 0)); err != nil {
		return err
	}
	if r.LogSize > maxBytes {
		return within("log_size", wrong("is %d: the most is %d", r.LogSize, int64(maxBytes)))
	}
	if r.FinishedAt <= 0 {
		return within("finished_at", wrong("is missing"))
	}
	if r.Usage != nil {
		if err := within("usage", checkUsage(r.Usage)); err != nil {
			return err
		}
	}
	return within("artifacts", checkArtifacts(r.Artifacts))
}

// checkUsage refuses what no meter shows.
func checkUsage(u *muster.Usage) error {
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"wall_seconds", u.WallSeconds}, {"cpu_seconds", u.CPUSeconds}, {"cpu_avg", u.CPUAvg}, {"cpu_peak", u.CPUPeak},
		{"gpu_avg", u.GPUAvg}, {"gpu_peak", u.GPUPeak}, {"power_avg", u.PowerAvg}, {"energy_wh", u.EnergyWh}, {"cost", u.Cost},
	} {
		if err := within(f.name, amount(f.v)); err != nil {
			return err
		}
		if f.v > maxFigure {
			return within(f.name, wrong("is %g: the most is %g", f.v, maxFigure))
		}
	}
	for _, f := range []struct {
		name string
		v    muster.Size
	}{
		{"memory_avg", u.MemoryAvg}, {"memory_peak", u.MemoryPeak}, {"disk_peak", u.DiskPeak}, {"read_bytes", u.ReadBytes},
		{"write_bytes", u.WriteBytes}, {"net_in", u.NetIn}, {"net_out", u.NetOut}, {"vram_peak", u.VRAMPeak}, {"pids_peak", muster.Size(u.PIDsPeak)},
	} {
		if err := within(f.name, atLeast(int64(f.v), 0)); err != nil {
			return err
		}
	}
	return within("gpu_temp_peak", finite(u.GPUTempPeak))
}

func checkReason(r muster.Reason) error {
	if r != muster.NoReason && !slices.Contains(muster.Reasons, r) {
		return wrong("is %q, which is not a reason", r)
	}
	return nil
}

// cidPattern is what a CIDv0 looks like; "" is none.
var cidPattern = regexp.MustCompile(`^(Qm[1-9A-HJ-NP-Za-km-z]{44})?$`)

func checkArtifact(a *muster.Artifact) error {
	if a.Name == "" {
		return within("name", wrong("is missing"))
	}
	if err := within("sha256", checkHash(a.SHA256)); err != nil {
		return err
	}
	if !cidPattern.MatchString(a.CID) {
		return within("cid", wrong("is %q: it must be Qm and 44 characters of base 58", a.CID))
	}
	return within("size", atLeast(a.Size, 0))
}

func checkHash(s string) error {
	if len(s) != 64 {
		return wrong("is %q: it must be 64 lower-case hex digits", s)
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return wrong("is %q: it must be 64 lower-case hex digits", s)
		}
	}
	return nil
}

func checkRenew(r *Renew) error {
	if r.Load != nil {
		if err := within("load", checkLoad(r.Load)); err != nil {
			return err
		}
	}
	return within("held", each(r.Held, checkAttempt))
}

func checkAssign(a *Assign) error {
	if err := within("attempt", checkAttempt(&a.Attempt)); err != nil {
		return err
	}
	if err := within("ref", atLeast(int64(a.Ref), 1)); err != nil {
		return err
	}
	g := &a.Grant
	if g.CPUs < 0 || g.Memory < 0 || g.Disk < 0 || g.Slots < 0 || g.GPUMemory < 0 || g.PIDs < 0 {
		return within("grant", wrong("has an amount below zero"))
	}
	if a.Checkpoint != "" {
		if err := within("checkpoint", checkHash(a.Checkpoint)); err != nil {
			return err
		}
	}
	if a.Gang != nil {
		if err := within("gang", checkGang(a.Gang)); err != nil {
			return err
		}
	}
	return within("inputs", each(a.Inputs, func(in *Input) error {
		if in.Path == "" {
			return within("path", wrong("is missing"))
		}
		if err := within("sha256", checkHash(in.SHA256)); err != nil {
			return err
		}
		return within("size", atLeast(in.Size, 0))
	}))
}

func checkGang(g *Gang) error {
	switch {
	case g.Size < 1 || g.Size > muster.MaxTasks:
		return within("size", wrong("is %d: it must be from 1 to %d", g.Size, muster.MaxTasks))
	case g.Rank < 0 || g.Rank >= g.Size:
		return within("rank", wrong("is %d: it must be from 0 to %d", g.Rank, g.Size-1))
	case g.Port < 1 || g.Port > math.MaxUint16:
		return within("port", wrong("is %d: it must be from 1 to %d", g.Port, math.MaxUint16))
	case g.Master == "":
		return within("master", wrong("is missing"))
	}
	return within("master", checkAddress(g.Master))
}

// checkHeal checks UUIDs of GPUs; HealAll stands for every one.
func checkHeal(list []string) error {
	if len(list) > MaxGPUs {
		return wrong("lists %d devices: the most is %d", len(list), MaxGPUs)
	}
	return each(list, func(uuid *string) error {
		if n := len(*uuid); n < 1 || n > maxUUID {
			return wrong("has %d bytes: it must be from 1 to %d", n, maxUUID)
		}
		return nil
	})
}

func checkCancel(c *Cancel) error {
	if err := within("attempt", checkAttempt(&c.Attempt)); err != nil {
		return err
	}
	return within("reason", checkReason(c.Reason))
}

func checkGoodbye(g *Goodbye) error {
	if g != nil && !slices.Contains(goodbyes, g.Code) {
		return within("code", wrong("is %q, which is not a code", g.Code))
	}
	return nil
}
