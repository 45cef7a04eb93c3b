package builtin

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/runtimes"
)

// Image is the pseudo-kind for a Python program in a container that uses the image's packages: `muster builtin image IMAGE RUNTIME WORDS…`.
// The first of the words is the interpreter, which replaces this program if it has what the runtime needs. RUNTIME is empty if it needs
// nothing.
const Image = "image"

func image(ctx context.Context, t *task) (any, error) {
	if len(t.command) < 3 {
		return nil, errors.New("builtin image is an internal command for tasks in containers")
	}
	name, runtime, argv := t.command[0], t.command[1], t.command[2:]
	python, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, failf(muster.Dependency, "the image %s has no %s: use an image with Python%s", name, argv[0], installHint(runtime))
	}
	if runtime != "" {
		missing, err := runtimes.Missing(ctx, runtime, python)
		switch {
		case err != nil:
			return nil, errors.Join(ctx.Err(), failf(muster.Dependency, "cannot use %s of the image %s: %w", argv[0], name, err))
		case len(missing) > 0:
			return nil, failf(muster.Dependency, "the image %s lacks %s for runtime %s: use one that has it%s", name, strings.Join(missing, " and "), runtime, installHint(runtime))
		}
	}
	return nil, execProgram(python, argv, os.Environ())
}

// installHint returns the alternative for a job that does not need its own image.
func installHint(runtime string) string {
	if runtime == "" {
		return ""
	}
	return ", or omit image: then the worker installs what runtime " + runtime + " needs"
}
