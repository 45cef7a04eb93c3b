package specvalidate

import (
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// checkpoint checks what a stage says about saving its state.
func (v *validator) checkpoint(t *muster.TaskSpec) {
	c := t.Checkpoint
	if c == nil {
		return
	}
	const day = 24 * time.Hour
	if t.Kind == muster.KindNoop {
		v.add("checkpoint", "take it out", "a noop has nothing to save")
	}
	v.text("checkpoint.path", c.Path, 4096)
	if c.Path != "" && (!fs.ValidPath(c.Path) || c.Path == ".") {
		v.add("checkpoint.path", "such as ckpt/", "%q is not a folder below the task's: write it relative, without .. and without ./ in front", truncate([]byte(c.Path)))
	}
	v.duration("checkpoint.every", c.Every, day)
	if c.Every > 0 && c.Every.Std() < time.Second {
		v.add("checkpoint.every", "", "%s is too often: the least is 1s", c.Every)
	}
	if c.Signal == "SIGKILL" {
		v.add("checkpoint.signal", "such as SIGUSR1", "SIGKILL leaves no time to save")
	} else if c.Signal != "" {
		v.oneOf("checkpoint.signal", c.Signal, muster.Signals...)
	}
	v.duration("checkpoint.grace", c.Grace, day)
}

// distributed checks how processes find each other: network, launcher and gang.
func (v *validator) distributed(t *muster.TaskSpec) {
	v.network(t)
	switch {
	case t.Launcher == "" && t.NProcPerNode != 0:
		v.add("nproc_per_node", "write launcher: torchrun", "it says how many processes a launcher starts, and there is none")
	case t.NProcPerNode < 0 || t.NProcPerNode > 1024:
		v.add("nproc_per_node", "", "%d is not a number of processes: write 1 to 1024, or 0 for one on each GPU", t.NProcPerNode)
	}
	if t.Launcher != "" {
		v.oneOf("launcher", t.Launcher, muster.LauncherTorchrun)
		if t.Kind == muster.KindNoop {
			v.add("launcher", "take it out", "a noop has no processes to launch")
		}
	}
	if t.Launcher == muster.LauncherTorchrun && t.Run != nil && startsTorchrun(t.Run) {
		v.add("run", "write the script and its arguments only", "the launcher calls torchrun already")
	}
	g := t.Gang
	if g == nil {
		return
	}
	if g.Size < 1 || g.Size > muster.MaxGangSize {
		v.add("gang.size", "", "%d is not a number of members: write 1 to %d", g.Size, muster.MaxGangSize)
	}
	if g.OnLoss != "" {
		v.oneOf("gang.on_loss", g.OnLoss, muster.GangRestart, muster.GangEnd)
	}
	if t.Array != nil || t.Matrix != nil {
		v.add("gang", "make a stage of its own for each gang", "a stage is a gang, or has an array or a matrix, not both")
	}
	switch {
	case t.Network == muster.NetworkNone, t.Network == muster.NetworkAllowlist:
		v.add("network", "take it out", "the members of a gang reach each other over the network")
	case t.Kind != muster.KindNoop && t.Image != "" && t.Network != muster.NetworkHost:
		v.add("network", "write network: host", "the members of a gang reach each other over their workers' own networks")
	}
}

// startsTorchrun reports whether the command's first word is torchrun.
func startsTorchrun(c *muster.Command) bool {
	words := c.Argv
	if words == nil {
		words = strings.Fields(c.Shell)
	}
	return len(words) > 0 && path.Base(words[0]) == "torchrun"
}
