package run

import "context"

// Containers makes containers for attempts. The container's main process is started and
// stood by as any other is: by the Supervisor, which is given Start.Container. All
// methods may be called at the same time.
type Containers interface {
	// Ready says why no container can be run now, nil if one can. It tells what is
	// known and asks nobody.
	Ready() error
	// Create brings the image here, as the spec's pull policy says, and makes a container of it
	// that is not started. say and step are for the task's log and its step.
	// A failure, a TaskError, leaves no container behind.
	Create(ctx context.Context, b *ContainerSpec, logLine, step func(string)) (*Container, error)
	// Remove ends a container and removes it with all that was made for it. One that is
	// not there is no error.
	Remove(ctx context.Context, c *Container) error
}

// ContainerSpec says what container an attempt needs, besides what its spec says: image,
// options, network. All paths but sources are those in the container.
type ContainerSpec struct {
	Task           *Task
	Argv           []string       // nil for the image's own command
	HasInterpreter bool           // Argv begins with a shell or an interpreter, and stands for the image's entrypoint, too
	Env            []string       // over the image's own; the paths of PYTHONPATH go before those of the image
	Dir            string         // in which the program starts; "" for the image's own
	Mounts         []Mount        // of the attempt's folders
	Home           string         // a folder that the program's user may write
	Isolation      *IsolationSpec // in whose Parent it is to be, if it has one and the engine can; nil for none

	// OpenMounts lets every user change what is mounted for writing. It is called before the container is
	// made, where its program may run as another user than the worker, and root is none.
	OpenMounts func() error
}

// Mount is a folder of the worker that a container has.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Container is one that was made for an attempt.
type Container struct {
	Engine     string   `json:"engine"` // the URL of its engine's API, such as unix:///var/run/docker.sock
	ID         string   `json:"id"`
	Image      string   `json:"image"`           // by its digest, such as docker.io/library/python@sha256:…
	ImageName  string   `json:"name,omitempty"`  // of its image, as people write it, such as python:3.12
	AllowHosts []string `json:"hosts,omitempty"` // network: allowlist: those that it may reach; not nil then

	InCgroup bool `json:"grouped,omitempty"` // it is in Box.Groups, which hold and count it
}
