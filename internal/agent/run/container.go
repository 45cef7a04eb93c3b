package run

// ContainerSpec is what an attempt's container needs, in addition to the image, options and network of its spec. All paths but sources of
// mounts are paths in the container.
type ContainerSpec struct {
	Task           *Task
	Argv           []string       // nil for the image's own command
	HasInterpreter bool           // Argv begins with a shell or an interpreter, and replaces the image's entrypoint
	Env            []string       // overrides the image's; the paths of PYTHONPATH precede those of the image
	Dir            string         // working directory; "" for the image's own
	Mounts         []Mount        // of the attempt's folders
	Home           string         // a folder that the program's user can write
	Isolation      *IsolationSpec // its CgroupParent is the container's, if it is set and the engine supports it; nil for none

	// OpenMounts makes the writable mounts writable for every user. It is called before a container is created whose program may run as
	// another user than the worker, without root.
	OpenMounts func() error
}

// Mount is a folder of the worker in a container.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Container is a container that was created for an attempt.
type Container struct {
	Engine     string   `json:"engine"` // the URL of its engine's API, such as unix:///var/run/docker.sock
	ID         string   `json:"id"`
	Image      string   `json:"image"`           // by its digest, such as docker.io/library/python@sha256:…
	ImageName  string   `json:"name,omitempty"`  // of its image as the user wrote it, such as python:3.12
	AllowHosts []string `json:"hosts,omitempty"` // with network: allowlist, the hosts that it may reach; not nil then

	InCgroup bool `json:"grouped,omitempty"` // it is in IsolationSpec.Cgroups, which limit and measure it
}
