package muster

// Allow limits what tasks may use on a worker. The worker enforces it; the server reads it
// to place tasks on other workers. A nil list allows everything, except Mounts, which then
// allows nothing; an empty list allows nothing. In a pattern * matches any text. Package
// allow implements the checks.
type Allow struct {
	Images      []string `json:"images,omitzero"`        // patterns of image names, such as ghcr.io/acme/* or python:3.*
	Users       []string `json:"users,omitzero"`         // container users, as in container.user; "" is the image's own
	Mounts      []string `json:"mounts,omitzero"`        // host folders, including their content; with :ro read-only; nil allows none
	Env         []string `json:"env,omitzero"`           // patterns of variable names that specs may set
	Secrets     []string `json:"secrets,omitzero"`       // patterns of names of secrets that tasks may be given
	HostNetwork bool     `json:"host_network,omitempty"` // containers may use the host's network
	SignedBy    []string `json:"signed_by,omitzero"`     // fingerprints of SSH keys, SHA256:…; a job must be signed by one of them

	TaskTimeout    Duration `json:"task_timeout,omitempty"`     // of tasks without one; 0 means MaxTaskTimeout
	MaxTaskTimeout Duration `json:"max_task_timeout,omitempty"` // tasks with a longer one are refused; 0 means no limit
}

// DefaultTimeout returns the timeout of tasks that set none, or 0. It is safe for a nil Allow.
func (a *Allow) DefaultTimeout() Duration {
	if a == nil {
		return 0
	}
	return a.TaskTimeout.Or(a.MaxTaskTimeout)
}
