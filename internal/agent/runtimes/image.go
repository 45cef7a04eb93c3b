package runtimes

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/muster-dev/muster/runtimes"
)

// Lacks lists what an interpreter lacks of what a runtime that comes with Muster needs. It is for programs that run where
// the interpreter is, as in an image: it is executed as it is, without limits.
func Lacks(ctx context.Context, name, python string) ([]string, error) {
	d, err := (&Runtimes{files: runtimes.Files()}).definition(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	said, err := exec.CommandContext(ctx, python, append([]string{"-c", asked}, d.names()...)...).CombinedOutput()
	var h hearing
	for line := range strings.Lines(string(said)) {
		h.hear(strings.TrimSpace(line))
	}
	if h.answer == nil {
		return nil, fmt.Errorf("%s does not work: it says %q (%w)", python, h.last, err)
	}
	return d.lacks(h.answer), nil
}
