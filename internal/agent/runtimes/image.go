package runtimes

import (
	"context"
	"fmt"
	"os/exec"

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
	output, err := exec.CommandContext(ctx, python, append([]string{"-c", inspectScript}, d.requirements()...)...).CombinedOutput()
	a, last := parseInspection(string(output))
	if a == nil {
		return nil, fmt.Errorf("%s does not work: it printed %q (%w)", python, last, err)
	}
	return a.Lacks, nil
}
