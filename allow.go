package muster

// Allow is what a worker's owner lets tasks have. The worker itself refuses what is
// beyond it; the server knows it so as to ask elsewhere. A list that is nil allows
// everything, but for Mounts; an empty one allows nothing. In a pattern * stands for any
// text. Package allow says what is beyond it.
type Allow struct {
	Images      []string `json:"images,omitzero"`        // patterns of names, such as ghcr.io/acme/* or python:3.*
	Users       []string `json:"users,omitzero"`         // of containers, as container.user names them; "" is the image's own
	Mounts      []string `json:"mounts,omitzero"`        // folders of the worker with what is in them, with :ro for reading only; nil allows none
	Env         []string `json:"env,omitzero"`           // patterns of names of variables that specs may set
	HostNetwork bool     `json:"host_network,omitempty"` // containers may have the worker's own network
}
