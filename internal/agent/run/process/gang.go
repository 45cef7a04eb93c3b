package process

import (
	"strconv"
	"strings"
)

// gangEnv tells a task its place among the members of its gang, and the devices
// that it was given. A launcher gives its processes places of their own; without
// one the names that PyTorch reads are set, too.
func (a *Attempt) gangEnv() []string {
	rank, size := "0", "1"
	var env []string
	if g := a.Task.Gang; g != nil {
		rank, size = strconv.Itoa(g.Rank), strconv.Itoa(g.Size)
		port := strconv.Itoa(g.Port)
		env = append(env, "MUSTER_MASTER_ADDR="+g.Master, "MUSTER_MASTER_PORT="+port)
		if a.Task.Spec.Launcher == "" {
			env = append(env, "RANK="+rank, "LOCAL_RANK=0", "WORLD_SIZE="+size, "MASTER_ADDR="+g.Master, "MASTER_PORT="+port)
		}
	}
	return append(env, "MUSTER_RANK="+rank, "MUSTER_WORLD_SIZE="+size, "MUSTER_GPUS="+strings.Join(a.Task.Grant.GPUs, ","))
}
