package specvalidate

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/resultcache"
)

// checkpoint checks the checkpoint options of a stage.
func (v *validator) checkpoint(t *muster.TaskSpec) {
	c := t.Checkpoint
	if c == nil {
		return
	}
	const day = 24 * time.Hour
	if t.Kind == muster.KindNoop {
		v.add("checkpoint", "remove it", "kind noop has nothing to save")
	}
	v.text("checkpoint.path", c.Path, 4096)
	if c.Path != "" && (!fs.ValidPath(c.Path) || c.Path == ".") {
		v.add("checkpoint.path", "such as ckpt/", "%q is not a folder in the task's folder: use a relative path without .. and leading ./", muster.Truncate(c.Path))
	}
	v.duration("checkpoint.every", c.Every, day)
	if c.Every > 0 && c.Every.Std() < time.Second {
		v.add("checkpoint.every", "", "%s is too short: the minimum is 1s", c.Every)
	}
	if c.Signal == "SIGKILL" {
		v.add("checkpoint.signal", "such as SIGUSR1", "SIGKILL leaves no time to save a checkpoint")
	} else if c.Signal != "" {
		v.oneOf("checkpoint.signal", c.Signal, checkpointSignals...)
	}
	v.duration("checkpoint.grace", c.Grace, day)
}

// cache checks that the results of a stage can be cached.
func (v *validator) cache(t *muster.TaskSpec) {
	switch {
	case t.Cache == 0:
		return
	case t.Cache < muster.CacheLifetime(time.Minute) || t.Cache > muster.MaxCacheLifetime:
		v.add("cache", "write true for 30d, or a duration such as 7d", "%s is out of range: a result is kept for 1m to 365d", t.Cache.Duration())
	case t.Gang != nil:
		v.add("cache", "remove it", "the members of a gang cannot use the cache: their results depend on each other")
	case t.Size() > muster.MaxCachedTasks:
		v.add("cache", "use several stages", "the stage has %d tasks: %d can use the cache", t.Size(), muster.MaxCachedTasks)
	default:
		if err := resultcache.Check(t); err != nil {
			v.add("cache", "remove it, or name what does not change", "%s", err)
		}
	}
}

// checkpointSignals are the signals that a task can handle.
var checkpointSignals = slices.DeleteFunc(slices.Clone(muster.TaskSignals), func(s string) bool { return s == "SIGKILL" })

// distributed checks network, launcher and gang.
func (v *validator) distributed(t *muster.TaskSpec) {
	v.network(t)
	switch {
	case t.Launcher == "" && t.NProcPerNode != 0:
		v.add("nproc_per_node", "write launcher: torchrun", "nproc_per_node needs a launcher")
	case t.NProcPerNode < 0 || t.NProcPerNode > 1024:
		v.add("nproc_per_node", "", "%d is not a number of processes: write 1 to 1024, or 0 for one per GPU", t.NProcPerNode)
	}
	if t.Launcher != "" {
		v.oneOf("launcher", t.Launcher, muster.LauncherTorchrun)
		if t.Kind == muster.KindNoop {
			v.add("launcher", "remove it", "kind noop has no processes")
		}
	}
	if t.Launcher == muster.LauncherTorchrun && t.Run != nil && startsTorchrun(t.Run) {
		v.add("run", "write the script and its arguments only", "the launcher already calls torchrun")
	}
	g := t.Gang
	if g == nil {
		return
	}
	if g.Size < 1 || g.Size > muster.MaxGangSize {
		v.add("gang.size", "", "%d is not a number of members: write 1 to %d", g.Size, muster.MaxGangSize)
	}
	v.optional("gang.on_loss", g.OnLoss, muster.GangRestart, muster.GangEnd)
	if t.Array != nil || t.Matrix != nil || t.Sweep != nil {
		v.add("gang", "use a separate stage for each gang", "a gang cannot have an array, a matrix or a sweep")
	}
	switch {
	case t.Network == muster.NetworkNone, t.Network == muster.NetworkAllowlist:
		v.add("network", "remove it", "the members of a gang need the network to reach each other")
	case t.Kind != muster.KindNoop && t.Image != "" && t.Network != muster.NetworkHost:
		v.add("network", "write network: host", "the members of a gang reach each other over the host networks of their workers")
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
