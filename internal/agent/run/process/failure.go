package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

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
	case !utf8.Valid(b) || json.Unmarshal(b, &claim) != nil:
		return nil, errors.New(`it is not JSON such as {"reason": "bad_input", "message": "…"}`)
	case !slices.Contains(claimableReasons, claim.Reason):
		return nil, fmt.Errorf("unknown reason %q: use one of %s", singleLine(string(claim.Reason), muster.MaxNameSize), joinReasons(claimableReasons))
	}
	text := singleLine(claim.Message, maxFailureText)
	if text == "" {
		text = "the program gave no message"
	}
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
	free, total, ok := diskSpace(a.base)
	if level == nearlyFull {
		return ok && (free < 1<<30 || free < total/20)
	}
	return ok && free < 64<<10
}
