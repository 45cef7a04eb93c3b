package process

import (
	"strconv"
	"strings"
)

// gangEnv returns the variables for the task's rank in its gang and for its devices. Without a launcher, which sets them for each
// of its processes, it includes the variables that PyTorch reads.
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
