package hostpolicy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

const (
	maxDesktopMemory = 1 << 30   // bytes of a device that a desktop program may hold
	maxDaemonMemory  = 256 << 20 // bytes that a process of root may hold
	maxHiddenMemory  = 1 << 30   // bytes that no listed process holds
	hiddenChecks     = 3         // consecutive checks with hidden memory, since process lists lag behind
)

// desktop lists programs that draw desktops, in lower case. Each holds memory of its device all the time.
var desktop = []string{
	"xorg", "x", "xwayland", "gnome-shell", "mutter", "kwin_x11", "kwin_wayland", "plasmashell", "ksmserver", "cinnamon",
	"xfwm4", "marco", "compiz", "muffin", "weston", "sway", "hyprland", "wayfire", "labwc", "river", "niri", "cosmic-comp",
	"gamescope", "gdm", "gdm-x-session", "sddm", "sddm-greeter", "lightdm", "picom", "nvidia-settings",
	"xdg-desktop-portal", "xdg-desktop-portal-gnome", "xdg-desktop-portal-kde", "dwm.exe", "explorer.exe", "windowserver",
}

// ownerKind is the sort of owner of a process.
type ownerKind int

const (
	ownedByUser   ownerKind = iota // the owner of the machine, as far as is known
	ownedByNobody                  // it has ended, or is not visible
	ownedByTask                    // a task of this worker or another one on the machine
	ownedByRoot                    // root, and not a task
)

type ownerFunc func(pid int) ownerKind

// ownerUse returns how the owner uses a device, "" if not. known reports whether that could be found out, and hidden whether
// memory is in use by no known process.
func ownerUse(r *gpu.Reading, kindOf ownerFunc, granted bool) (why string, hidden, known bool) {
	if r.Processes == nil {
		return "", false, false
	}
	var biggest *gpu.Process
	listed, countable, hasTask := muster.Size(0), true, false
	for i := range r.Processes {
		p := &r.Processes[i]
		listed += p.Memory
		countable = countable && p.Memory > 0
		switch w := kindOf(p.PID); {
		case w == ownedByTask:
			hasTask = true
		case w == ownedByNobody:
		case w == ownedByRoot && p.Memory < maxDaemonMemory:
		case isDesktop(p.Name) && p.Memory < maxDesktopMemory:
		case biggest == nil || p.Memory > biggest.Memory:
			biggest = p
		}
	}
	if biggest != nil {
		return fmt.Sprintf("in use by its owner: pid %d%s", biggest.PID, nameSuffix(biggest.Name)), false, true
	}
	// Not all tools list programs that only draw, such as games. If a tool does not even list the tasks, as in a container, the
	// memory says nothing.
	hidden = countable && r.Memory != nil && *r.Memory-listed > maxHiddenMemory && (hasTask || !granted)
	return "", hidden, true
}

func isDesktop(name string) bool { return slices.Contains(desktop, strings.ToLower(base(name))) }

func base(name string) string { return path.Base(strings.ReplaceAll(name, `\`, "/")) }

func nameSuffix(name string) string {
	if name == "" || strings.HasPrefix(name, "[") { // as in [Not Found]
		return ""
	}
	return " " + base(name)
}

type ownerTracker struct {
	coolDown time.Duration
	uses     map[string]*deviceUse // by UUID
}

// deviceUse is what is known of a device that the owner uses, or may use.
type deviceUse struct {
	why      string    // "" if only hidden memory was seen, in too few checks so far
	lastUsed time.Time // by the owner
	lastRead time.Time // the last reading with a process list
	hidden   int       // consecutive checks with hidden memory
}

// update evaluates readings and returns the devices that the owner uses, and why. granted are the devices of tasks.
func (o *ownerTracker) update(now time.Time, readings []gpu.Reading, granted map[string]bool, kindOf ownerFunc) map[string]string {
	for i := range readings {
		o.observe(now, &readings[i], granted, kindOf)
	}
	busy := map[string]string{}
	for id, u := range o.uses {
		if now.Sub(u.lastRead) >= blindTimeout {
			*u = deviceUse{}
		}
		if u.why != "" {
			busy[id] = u.why
		} else if u.hidden == 0 {
			delete(o.uses, id)
		}
	}
	return busy
}

func (o *ownerTracker) observe(now time.Time, r *gpu.Reading, granted map[string]bool, kindOf ownerFunc) {
	why, hidden, known := ownerUse(r, kindOf, granted[r.UUID])
	u := o.uses[r.UUID]
	if !known || u == nil && why == "" && !hidden {
		return
	}
	if u == nil {
		u = &deviceUse{}
		o.uses[r.UUID] = u
	}
	u.lastRead = now
	if !hidden {
		u.hidden = 0
	} else if u.hidden++; u.hidden >= hiddenChecks {
		why = "in use by its owner: it holds memory of processes that its driver does not list, such as a game"
	}
	if why != "" {
		u.why, u.lastUsed = why, now
	} else if u.why != "" && now.Sub(u.lastUsed) >= o.coolDown {
		u.why = ""
	}
}
