package runtimes

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/muster-dev/muster/runtimes"
)

// Missing lists the requirements of one of Muster's runtimes that an interpreter does not satisfy. It executes the interpreter without
// isolation, so it is only for programs that run in the same image.
func Missing(ctx context.Context, name, python string) ([]string, error) {
	d, err := (&Runtimes{files: runtimes.Files()}).definition(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	logged, err := exec.CommandContext(ctx, python, append([]string{"-c", inspectScript}, d.requirements()...)...).CombinedOutput()
	var h inspectOutput
	for line := range strings.Lines(string(logged)) {
		h.addLine(strings.TrimSpace(line))
	}
	if h.result == nil {
		return nil, fmt.Errorf("%s does not work: it printed %q (%w)", python, h.last, err)
	}
	return h.result.Lacks, nil
}
