package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/redact"
	"github.com/muster-dev/muster/internal/agent/run"
)

// report returns the attempt's report; err is the failure of a phase. The first of these decides: it was stopped (unless by a timeout
// that a failed device explains); its log failed; how its process exited (unless a device failed); err.
func (a *Attempt) report(ctx context.Context, err error) muster.Report {
	r := muster.Report{
		Attempt: a.Task.Attempt, Result: a.result, Artifacts: a.artifacts, LogSize: a.log.size(), StartedAt: a.started, FinishedAt: run.Now(),
	}
	if a.container != nil {
		r.Image = a.container.Image
	}
	stopped := a.stopped()
	if a.exit != nil {
		if a.exit.Code >= 0 {
			r.ExitCode = &a.exit.Code
		}
		r.Usage = a.usage()
	}
	if stopped == nil && ctx.Err() != nil && (err != nil || a.exit == nil) {
		stopped = run.StopCause(ctx)
	}
	if stopped != nil && (stopped.Outcome != muster.AttemptTimedOut || !isDeviceFault(err)) {
		r.Outcome, r.Reason, r.Message = stopped.Outcome, stopped.Reason, stopped.Message
		return r
	}
	if logErr := a.log.failure(); logErr != nil {
		err = logErr
	} else if exitErr := a.exitFailure(); exitErr != nil && !isDeviceFault(err) {
		err = exitErr
	}
	if a.exit != nil {
		err = a.addTails(ctx, &r, err)
	}
	if err == nil {
		r.Outcome = muster.AttemptSucceeded
		return r
	}
	r.Outcome, r.Reason, r.Message = muster.AttemptFailed, muster.WorkerInternal, err.Error()
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		r.Reason, r.Message = f.Reason, f.Message
		if f.ExitCode != 0 {
			r.ExitCode = &f.ExitCode
		}
	}
	return r
}

// addTails adds the ends of the program's output to a failure that only its exit explains, which it returns, and gives a program without a
// result one. A task that prints nothing costs nothing.
func (a *Attempt) addTails(ctx context.Context, r *muster.Report, err error) error {
	failure, ok := errors.AsType[*run.TaskError](err)
	explain := ok && failure != a.claimedFailure && (failure.Reason == muster.ExitCode || failure.Reason == muster.Signal)
	ownProgram := slices.Contains([]string{muster.KindProcess, muster.KindScript, muster.KindContainer}, a.executor.kind) && !a.ownResult && (err == nil || explain)
	if !explain && !ownProgram {
		return err
	}
	t := a.readTails(ctx)
	if ownProgram {
		r.Result = t.result(a.exit.Code)
		a.defaultResult = r.Result != nil
	}
	if explain {
		explained := *failure
		explained.Message = t.describe(failure.Message)
		return &explained
	}
	return err
}

// redactReport replaces the values of secrets in a report.
func (a *Attempt) redactReport(r *muster.Report) {
	r.Message = a.redactor.String(r.Message)
	if r.Result = a.redactor.JSON(r.Result); len(r.Result) > muster.MaxResultSize { // many short lines of a value
		r.Result = json.RawMessage(`"` + redact.Mask + `"`)
	}
}

// isReproducible reports whether the next incarnation of the worker can make the same report without the attempt's folders. Such a
// report need not be saved.
func (a *Attempt) isReproducible(r *muster.Report) bool {
	spec := a.Task.Spec
	return a.exit != nil && r.Outcome == muster.AttemptSucceeded && len(r.Artifacts) == 0 && (r.Result == nil || a.defaultResult) &&
		len(spec.Outputs) == 0 && spec.Checkpoint == nil && len(a.Task.Grant.GPUs) == 0
}

// isDeviceFault reports whether err is a failed device, which explains every other failure.
func isDeviceFault(err error) bool {
	f, ok := errors.AsType[*run.TaskError](err)
	return ok && f.Reason == muster.GPUFault
}

// exitFailure returns the failure that the exit of the main process means, nil for exit code 0.
func (a *Attempt) exitFailure() error {
	if a.exit == nil || a.exit.Code == 0 {
		return nil
	}
	x, c := a.exit, &a.stats
	rssNote := ""
	if x.MaxRSS > 0 {
		rssNote = fmt.Sprintf(" (its largest process used %s)", x.MaxRSS)
	}
	switch {
	case c.OOMKills != nil && *c.OOMKills > 0:
		return run.Failf(muster.OutOfMemory, "killed because memory ran out: %s", a.memoryHint())
	case a.container != nil && (x.OOM || c.LikelyOOM && x.Signal == "SIGKILL"):
		return run.Failf(muster.OutOfMemory, "killed because memory ran out: %s", a.memoryHint())
	case x.OOM && c.OOMKills == nil: // the machine's counter includes other processes: only used without a control group
		return run.Failf(muster.OutOfMemory, "killed because memory ran out%s", rssNote)
	case c.PIDsDenied != nil && *c.PIDsDenied > 0:
		return run.Failf(muster.PIDLimit, "%s after it reached its limit of processes or threads: %s", describeExit(x), a.pidsHint())
	case a.claimedFailure != nil:
		return a.claimedFailure
	case a.diskFull(completelyFull): // whatever filled it: a program that cannot write may exit in any way
		return run.Failf(muster.DiskFull, "%s; the worker's disk is full", describeExit(x))
	case x.Signal != "":
		return run.Failf(muster.Signal, "%s%s", describeExit(x), rssNote)
	}
	return run.Failf(muster.ExitCode, "%s", describeExit(x))
}

func describeExit(x *run.Exit) string {
	if x.Signal != "" {
		return "ended by " + x.Signal
	}
	return fmt.Sprintf("exit code %d", x.Code)
}

// memoryHint returns the task's memory use and limit, and what to do.
func (a *Attempt) memoryHint() string {
	peak := "it"
	if p := a.stats.MemoryPeak; p != nil {
		peak = fmt.Sprintf("it reached %s and", *p)
	}
	if limit := a.Task.Grant.Memory; limit > 0 {
		return fmt.Sprintf("%s may use %s: request more with resources.memory", peak, limit)
	}
	return peak + " needed more than this worker has for all of its tasks: request what it needs with resources.memory"
}

// pidsHint returns the task's limit of processes, and what to do.
func (a *Attempt) pidsHint() string {
	if limit := a.Task.Grant.PIDs; limit > 0 {
		return fmt.Sprintf("it may have %d; request more with resources.pids", limit)
	}
	return "it has the most that this worker allows; request more with resources.pids"
}

// minAverageWall is the shortest wall time in seconds with an average CPU use: counters of CPU time advance in steps of up to 10 ms.
const minAverageWall = 0.1

// usage combines the meter's samples, the control group's counters and the main process's resource usage.
func (a *Attempt) usage() *muster.Usage {
	u, c := a.meteredUsage, &a.stats
	u.WallSeconds, u.CPUSeconds = a.exit.Wall.Seconds(), max(a.exit.CPU.Seconds(), u.CPUSeconds)
	if c.CPU != nil {
		u.CPUSeconds = c.CPU.Seconds()
	}
	if u.WallSeconds >= minAverageWall {
		// The CPU time that an engine uses to start a container counts for the container, but not its wall time.
		u.CPUAvg = min(u.CPUSeconds/u.WallSeconds, float64(runtime.NumCPU()))
	}
	if u.CPUPeak > 0 {
		u.CPUPeak = max(u.CPUPeak, u.CPUAvg) // samples miss short processes
	}
	u.MemoryPeak = max(u.MemoryPeak, a.exit.MaxRSS)
	if c.MemoryPeak != nil {
		u.MemoryPeak = *c.MemoryPeak
	}
	if c.Read != nil {
		u.ReadBytes = *c.Read
	}
	if c.Written != nil {
		u.WriteBytes = *c.Written
	}
	return &u
}

const (
	failureName    = "failure.json"
	maxFailure     = 64 << 10
	maxFailureText = 2000 // bytes of the message
)

// claimableReasons are the reasons that a program may report for its failure. Only the worker determines the others.
var claimableReasons = []muster.Reason{
	muster.BadInput, muster.Dependency, muster.Diverged, muster.OutOfMemory, muster.ArtifactMissing, muster.DiskFull, muster.ExitCode,
}

// readFailure reads failure.json of a program that failed. It only logs a file that it cannot parse.
func (a *Attempt) readFailure() {
	if a.exit == nil || a.exit.Code == 0 {
		return
	}
	claim, err := a.failureFile()
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		a.LogLine(fmt.Sprintf("%s is ignored: %s", failureName, err))
	default:
		a.claimedFailure = claim
	}
}

func (a *Attempt) failureFile() (*run.TaskError, error) {
	b, err := a.readOutFile(failureName, maxFailure)
	if err != nil {
		return nil, err
	}
	var claim struct {
		Reason  muster.Reason `json:"reason"`
		Message string        `json:"message"`
	}
	switch {
	case len(b) > maxFailure:
		return nil, fmt.Errorf("it is larger than %s", muster.Size(maxFailure))
	case !utf8.Valid(b) || json.Unmarshal(a.redactor.JSON(b), &claim) != nil: // before the message is cut
		return nil, errors.New(`it is not JSON such as {"reason": "bad_input", "message": "…"}`)
	case !slices.Contains(claimableReasons, claim.Reason):
		return nil, fmt.Errorf("unknown reason %q: use one of %s", singleLine(string(claim.Reason), muster.MaxNameSize), joinReasons(claimableReasons))
	}
	text := cmp.Or(singleLine(claim.Message, maxFailureText), "the program gave no message")
	if claim.Reason == muster.DiskFull && !a.diskFull(nearlyFull) {
		// A full disk is retried without using up an attempt, so a program cannot claim it while there is space.
		return run.Failf(muster.ExitCode, "%s (%s): the program reports a full disk, but the worker's disk is not full", text, describeExit(a.exit)), nil
	}
	return &run.TaskError{Reason: claim.Reason, Message: text}, nil
}

// singleLine replaces white space and control characters by single spaces and cuts the text to maxLen bytes.
func singleLine(s string, maxLen int) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }), " ")
	if len(s) <= maxLen {
		return s
	}
	return strings.ToValidUTF8(s[:maxLen], "") + "…"
}

func joinReasons(reasons []muster.Reason) string {
	var names []string
	for _, r := range reasons {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// fullness is when a disk counts as full.
type fullness int

const (
	completelyFull fullness = iota // nothing more can be written
	nearlyFull                     // a large file may not have fitted, and the program has removed what it wrote of it
)

// diskFull reports whether the disk of the attempt's folders is full. It is false where that cannot be determined.
func (a *Attempt) diskFull(level fullness) bool {
	usage, err := disk.Usage(a.base)
	if level == nearlyFull {
		return err == nil && (usage.Free < 1<<30 || usage.Free < usage.Total/20)
	}
	return err == nil && usage.Free < 64<<10
}
