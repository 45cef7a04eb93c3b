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
		return inField("hello", fieldErrorf("belongs in the first frame, and only there"))
	}
	if f.Hello != nil {
		if err := inField("hello", checkHello(f.Hello)); err != nil {
			return err
		}
	}
	if f.Ready != nil {
		if err := inField("ready", inField("constrained", checkSentence(f.Ready.Constrained))); err != nil {
			return err
		}
	}
	if f.Offer != nil {
		if err := inField("offer", checkOffer(f.Offer)); err != nil {
			return err
		}
	}
	if err := inField("accepted", checkEach(f.Accepted, checkAttempt)); err != nil {
		return err
	}
	if err := inField("rejected", checkEach(f.Rejected, func(r *Rejected) error { return inField("attempt", checkAttempt(&r.Attempt)) })); err != nil {
		return err
	}
	if err := inField("started", checkEach(f.Started, checkStarted)); err != nil {
		return err
	}
	if err := inField("progress", checkEach(f.Progress, checkProgress)); err != nil {
		return err
	}
	if err := inField("logs", checkLogs(f.Logs)); err != nil {
		return err
	}
	if err := inField("saved", checkEach(f.Saved, checkSaved)); err != nil {
		return err
	}
	if err := inField("finished", checkEach(f.Finished, checkReport)); err != nil {
		return err
	}
	if f.Renew != nil {
		if err := inField("renew", checkRenew(f.Renew)); err != nil {
			return err
		}
	}
	return inField("goodbye", checkGoodbye(f.Goodbye))
}

// checkToWorker is checkToServer for the other direction.
func checkToWorker(f *ToWorker) error {
	if f.Seq == 1 && f.Welcome == nil && f.Goodbye == nil || f.Seq != 1 && f.Welcome != nil {
		return inField("welcome", fieldErrorf("belongs in the first frame, and only there"))
	}
	if f.Welcome != nil {
		if err := inField("welcome", checkWelcome(f.Welcome)); err != nil {
			return err
		}
	}
	if err := inField("specs", checkEach(f.Specs, checkGroupSpec)); err != nil {
		return err
	}
	if err := inField("assign", checkEach(f.Assign, checkAssign)); err != nil {
		return err
	}
	if err := inField("cancel", checkEach(f.Cancel, checkCancel)); err != nil {
		return err
	}
	if err := inField("finished_ack", checkEach(f.FinishedAck, checkAttempt)); err != nil {
		return err
	}
	if err := inField("log_ack", checkEach(f.LogAck, checkLogAck)); err != nil {
		return err
	}
	if err := inField("heal", checkHeal(f.Heal)); err != nil {
		return err
	}
	return inField("goodbye", checkGoodbye(f.Goodbye))
}

func checkEach[T any](list []T, check func(*T) error) error {
	for i := range list {
		if err := check(&list[i]); err != nil {
			return inField("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

func checkMin(n, least int64) error {
	if n < least {
		return fieldErrorf("is %d: it must be %d or more", n, least)
	}
	return nil
}

// checkFinite refuses what JSON cannot say.
func checkFinite(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fieldErrorf("is %v: it must be a number", v)
	}
	return nil
}

// checkAmount refuses what JSON cannot say, and amounts below zero.
func checkAmount(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return fieldErrorf("is %v: it must be a number from 0", v)
	}
	return nil
}

func checkAttempt(a *muster.AttemptID) error {
	if a.Task.Job < 1 || a.Task.Num < 0 || a.Task.Num > muster.MaxTasks || a.N < 1 || a.N > math.MaxInt32 {
		return fieldErrorf("is missing or no attempt id")
	}
	return nil
}

func checkHello(h *Hello) error {
	if h.Worker == "" {
		return inField("worker", fieldErrorf("is missing"))
	}
	if err := inField("price", checkAmount(h.Price)); err != nil {
		return err
	}
	if err := checkHelloLimits(h); err != nil {
		return err
	}
	if err := inField("resources", checkResources(&h.Resources)); err != nil {
		return err
	}
	if err := inField("own_kinds", checkOwnKinds(h.OwnKinds)); err != nil {
		return err
	}
	if err := inField("address", checkAddress(h.Address)); err != nil {
		return err
	}
	if err := inField("held", checkEach(h.Held, checkAttempt)); err != nil {
		return err
	}
	return inField("stale", checkEach(h.Stale, checkAttempt))
}

// maxUID is the most bytes of a job's UID.
const maxUID = 64

func checkGroupSpec(s *GroupSpec) error {
	if err := inField("ref", checkMin(int64(s.Ref), 1)); err != nil {
		return err
	}
	// It becomes part of a path on the worker.
	for _, c := range []byte(s.UID) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return inField("uid", fieldErrorf("has characters other than a-z and 0-9"))
		}
	}
	if s.UID == "" || len(s.UID) > maxUID {
		return inField("uid", fieldErrorf("is missing or longer than %d bytes", maxUID))
	}
	return nil
}

func checkOffer(o *Offer) error {
	if err := checkOfferLimits(o, nil); err != nil {
		return err
	}
	if err := inField("own_kinds", checkOwnKinds(o.OwnKinds)); err != nil {
		return err
	}
	return inField("resources", checkResources(&o.Resources))
}

// checkOwnKinds checks that it is a list, if it is JSON. What is in it is looked at by those who use it.
func checkOwnKinds(raw json.RawMessage) error {
	switch {
	case len(raw) > MaxOwnKinds:
		return fieldErrorf("has %d bytes: the most is %d", len(raw), MaxOwnKinds)
	case len(raw) > 0 && raw[0] != '[':
		return fieldErrorf("is no list")
	case depthOf(raw) > maxDepth:
		return fieldErrorf("is deeper than %d levels", maxDepth)
	}
	return nil
}

// checkResources checks what a machine says that it has.
func checkResources(r *muster.Resources) error {
	if err := inField("cpus", checkAmount(r.CPUs)); err != nil {
		return err
	}
	if err := inField("memory", checkMin(int64(r.Memory), 0)); err != nil {
		return err
	}
	if err := inField("disk", checkMin(int64(r.Disk), 0)); err != nil {
		return err
	}
	if err := inField("slots", checkMin(int64(r.Slots), 0)); err != nil {
		return err
	}
	if err := inField("max_tasks", checkMin(int64(r.MaxTasks), 0)); err != nil {
		return err
	}
	return inField("gpus", checkDevices(r.GPUs, func(g *muster.GPU) (string, error) {
		return g.UUID, inField("memory", checkMin(int64(g.Memory), 0))
	}))
}

// checkDevices checks a list of what each belongs to one device: not too many, each with a
// UUID, and none twice.
func checkDevices[T any](list []T, check func(*T) (uuid string, err error)) error {
	if len(list) > MaxGPUs {
		return fieldErrorf("lists %d devices: the most is %d", len(list), MaxGPUs)
	}
	seen := make(map[string]bool, len(list))
	return checkEach(list, func(g *T) error {
		uuid, err := check(g)
		switch {
		case err != nil:
			return err
		case uuid == "":
			return inField("uuid", fieldErrorf("is missing"))
		case seen[uuid]:
			return inField("uuid", fieldErrorf("is %q, as of one before", uuid))
		}
		seen[uuid] = true
		return nil
	})
}

// checkAddress refuses what is neither a host name nor an IP address.
func checkAddress(s string) error {
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
	if w.Heartbeat <= 0 {
		return inField("heartbeat", fieldErrorf("is %s: it must be more than 0", w.Heartbeat))
	}
	if err := inField("keep", checkEach(w.Keep, checkLogAck)); err != nil {
		return err
	}
	return inField("stop", checkEach(w.Stop, checkAttempt))
}

func checkLogAck(a *LogAck) error {
	if err := inField("attempt", checkAttempt(&a.Attempt)); err != nil {
		return err
	}
	if a.Pause < 0 {
		return inField("pause", fieldErrorf("is %s: it must not be negative", a.Pause))
	}
	return inField("size", checkMin(a.Size, 0))
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
	if p.Step != nil && len(*p.Step) > MaxStep {
		return inField("step", fieldErrorf("has %d bytes: the most is %d", len(*p.Step), MaxStep))
	}
	if len(p.Metrics) > MaxMetrics {
		return inField("metrics", fieldErrorf("are %d: the most is %d", len(p.Metrics), MaxMetrics))
	}
	for name, v := range p.Metrics {
		if err := checkText(name, maxText); err != nil {
			return inField("metrics", err)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return inField("metrics", inField(name, fieldErrorf("is %v, which is not a number", v)))
		}
	}
	if err := inField("artifacts", checkLive(p.Artifacts)); err != nil {
		return err
	}
	return inField("attempt", checkAttempt(&p.Attempt))
}

// checkLive checks what a task shows while it runs.
func checkLive(list []muster.Artifact) error {
	if len(list) > muster.MaxLiveFiles {
		return fieldErrorf("are %d: the most is %d", len(list), muster.MaxLiveFiles)
	}
	seen := make(map[string]bool, len(list))
	return checkEach(list, func(a *muster.Artifact) error {
		dir, name := path.Split(a.Name)
		switch {
		case dir != muster.LiveDir+"/" || name == "" || len(a.Name) > maxName || !utf8.ValidString(name) || path.Clean(a.Name) != a.Name:
			return inField("name", fieldErrorf("is %q: it must be of a file in %s/", a.Name, muster.LiveDir))
		case seen[a.Name]:
			return inField("name", fieldErrorf("is %q, as of one before", a.Name))
		case a.Size > muster.MaxLiveFileSize:
			return inField("size", fieldErrorf("is %d: the most is %d", a.Size, muster.MaxLiveFileSize))
		}
		seen[a.Name] = true
		return checkArtifact(a)
	})
}

// CheckAddress says what keeps s from being where other workers reach a worker, or nil.
func CheckAddress(s string) error { return checkAddress(s) }

// CheckProgress says what in p no session would carry, or nil.
func CheckProgress(p *muster.Progress) error { return inField("progress", checkProgress(p)) }

// CheckUsage says what in u no session would carry, or nil.
func CheckUsage(u *muster.Usage) error { return inField("usage", checkUsage(u)) }

// CheckReport says what in r no session would carry, or nil.
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
		return fieldErrorf("have %d bytes: the most in one frame is %d", sum, MaxLogs)
	}
	return checkEach(logs, func(c *LogChunk) error {
		if err := inField("attempt", checkAttempt(&c.Attempt)); err != nil {
			return err
		}
		return inField("offset", checkMin(c.Offset, 0))
	})
}

func checkSaved(s *Saved) error {
	if err := inField("attempt", checkAttempt(&s.Attempt)); err != nil {
		return err
	}
	return inField("sha256", checkHash(s.SHA256))
}

func checkReport(r *muster.Report) error {
	if err := inField("attempt", checkAttempt(&r.Attempt)); err != nil {
		return err
	}
	if !slices.Contains(outcomes, r.Outcome) {
		return inField("outcome", fieldErrorf("is %q: it must be one of %q", r.Outcome, outcomes))
	}
	if err := inField("reason", checkReason(r.Reason)); err != nil {
		return err
	}
	if len(r.Result) > muster.MaxResultSize {
		return inField("result", fieldErrorf("has %d bytes: the most is %d", len(r.Result), muster.MaxResultSize))
	}
	if err := inField("log_size", checkMin(r.LogSize, 0)); err != nil {
		return err
	}
	if r.LogSize > maxBytes {
		return inField("log_size", fieldErrorf("is %d: the most is %d", r.LogSize, int64(maxBytes)))
	}
	if r.FinishedAt <= 0 {
		return inField("finished_at", fieldErrorf("is missing"))
	}
	if r.Usage != nil {
		if err := inField("usage", checkUsage(r.Usage)); err != nil {
			return err
		}
	}
	return inField("artifacts", checkArtifacts(r.Artifacts))
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
		if err := inField(f.name, checkAmount(f.v)); err != nil {
			return err
		}
		if f.v > maxUsageValue {
			return inField(f.name, fieldErrorf("is %g: the most is %g", f.v, maxUsageValue))
		}
	}
	for _, f := range []struct {
		name string
		v    muster.Size
	}{
		{"memory_avg", u.MemoryAvg}, {"memory_peak", u.MemoryPeak}, {"disk_peak", u.DiskPeak}, {"read_bytes", u.ReadBytes},
		{"write_bytes", u.WriteBytes}, {"net_in", u.NetIn}, {"net_out", u.NetOut}, {"vram_peak", u.VRAMPeak}, {"pids_peak", muster.Size(u.PIDsPeak)},
	} {
		if err := inField(f.name, checkMin(int64(f.v), 0)); err != nil {
			return err
		}
	}
	return inField("gpu_temp_peak", checkFinite(u.GPUTempPeak))
}

func checkReason(r muster.Reason) error {
	if r != muster.NoReason && !slices.Contains(muster.Reasons, r) {
		return fieldErrorf("is %q, which is not a reason", r)
	}
	return nil
}

// cidPattern is what a CIDv0 looks like; "" is none.
var cidPattern = regexp.MustCompile(`^(Qm[1-9A-HJ-NP-Za-km-z]{44})?$`)

func checkArtifact(a *muster.Artifact) error {
	if a.Name == "" {
		return inField("name", fieldErrorf("is missing"))
	}
	if err := inField("sha256", checkHash(a.SHA256)); err != nil {
		return err
	}
	if !cidPattern.MatchString(a.CID) {
		return inField("cid", fieldErrorf("is %q: it must be Qm and 44 characters of base 58", a.CID))
	}
	return inField("size", checkMin(a.Size, 0))
}

func checkHash(s string) error {
	if len(s) != 64 {
		return fieldErrorf("is %q: it must be 64 lower-case hex digits", s)
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fieldErrorf("is %q: it must be 64 lower-case hex digits", s)
		}
	}
	return nil
}

func checkRenew(r *Renew) error {
	if r.Load != nil {
		if err := inField("load", checkLoad(r.Load)); err != nil {
			return err
		}
	}
	return inField("held", checkEach(r.Held, checkAttempt))
}

func checkAssign(a *Assign) error {
	if err := inField("attempt", checkAttempt(&a.Attempt)); err != nil {
		return err
	}
	if err := inField("ref", checkMin(int64(a.Ref), 1)); err != nil {
		return err
	}
	g := &a.Grant
	if g.CPUs < 0 || g.Memory < 0 || g.Disk < 0 || g.Slots < 0 || g.GPUMemory < 0 || g.PIDs < 0 {
		return inField("grant", fieldErrorf("has an amount below zero"))
	}
	if a.Checkpoint != "" {
		if err := inField("checkpoint", checkHash(a.Checkpoint)); err != nil {
			return err
		}
	}
	if a.Gang != nil {
		if err := inField("gang", checkGang(a.Gang)); err != nil {
			return err
		}
	}
	return inField("inputs", checkEach(a.Inputs, func(in *Input) error {
		if in.Path == "" {
			return inField("path", fieldErrorf("is missing"))
		}
		if err := inField("sha256", checkHash(in.SHA256)); err != nil {
			return err
		}
		return inField("size", checkMin(in.Size, 0))
	}))
}

func checkGang(g *Gang) error {
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
	return inField("master", checkAddress(g.Master))
}

// checkHeal checks UUIDs of GPUs; HealAll stands for every one.
func checkHeal(list []string) error {
	if len(list) > MaxGPUs {
		return fieldErrorf("lists %d devices: the most is %d", len(list), MaxGPUs)
	}
	return checkEach(list, func(uuid *string) error {
		if n := len(*uuid); n < 1 || n > maxUUID {
			return fieldErrorf("has %d bytes: it must be from 1 to %d", n, maxUUID)
		}
		return nil
	})
}

func checkCancel(c *Cancel) error {
	if err := inField("attempt", checkAttempt(&c.Attempt)); err != nil {
		return err
	}
	return inField("reason", checkReason(c.Reason))
}

func checkGoodbye(g *Goodbye) error {
	if g != nil && !slices.Contains(goodbyes, g.Code) {
		return inField("code", fieldErrorf("is %q, which is not a code", g.Code))
	}
	return nil
}
