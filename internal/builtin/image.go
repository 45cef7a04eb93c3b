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

// Image is the word for a program of Python in a container, where the packages are the image's: `muster do image IMAGE RUNTIME WORDS…`.
// The first of the words is the interpreter, which is executed in place of this program if it has what the runtime needs.
// RUNTIME is empty for one that needs nothing.
const Image = "image"

func image(ctx context.Context, t *task) (any, error) {
	if len(t.command) < 3 {
		return nil, errors.New("do image is for tasks in containers: the worker executes it")
	}
	name, runtime, argv := t.command[0], t.command[1], t.command[2:]
	python, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, failf(muster.Dependency, "there is no %s in the image %s: take an image with Python%s", argv[0], name, installHint(runtime))
	}
	if runtime != "" {
		missing, err := runtimes.Missing(ctx, runtime, python)
		switch {
		case err != nil:
			return nil, errors.Join(ctx.Err(), failf(muster.Dependency, "%s of the image %s cannot be used: %w", argv[0], name, err))
		case len(missing) > 0:
			return nil, failf(muster.Dependency, "the image %s lacks %s for runtime %s: take one that has it%s", name, strings.Join(missing, " and "), runtime, installHint(runtime))
		}
	}
	return nil, execProgram(python, argv, os.Environ())
}

// installHint is what a job may do that brings no image of its own.
func installHint(runtime string) string {
	if runtime == "" {
		return ""
	}
	return ", or leave image out: then the worker installs what runtime " + runtime + " needs"
}
