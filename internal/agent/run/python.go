package run

import (
	"context"
	"io"
	"os"

	"github.com/muster-dev/muster"
)

// PythonRequest asks for the Python environment of a task.
type PythonRequest struct {
	Project string // whose tasks may use it
	Python  *muster.Python
	Root    *os.Root     // the folder with the requirements and the project
	Image   *PythonImage // for a container; nil for a process

	Files string                                      // identifies the content of the task's files; "" for none
	Fetch func(ctx context.Context, dir string) error // writes the task's files to an empty folder; not nil with Files
}

// PythonImage is the image of a container, whose Python the environment is built with.
type PythonImage struct {
	ID   string // of its content
	Name string // in messages
	// Run runs a program in a container of the image, within the limits of the task, writes its output to w and returns its exit code.
	Run func(ctx context.Context, tool *ImageTool, w io.Writer) (int, error)
}

// ImageTool is a program that runs in a container.
type ImageTool struct {
	Argv   []string
	Env    []string // overrides the image's
	Dir    string
	Mounts []Mount
}
