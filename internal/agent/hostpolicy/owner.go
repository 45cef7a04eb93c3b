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
	maxDesktopMemory = 1 << 30   // bytes of a device that what draws the desktop may hold
	maxDaemonMemory  = 256 << 20 // that a process of root's may hold
	maxHiddenMemory  = 1 << 30   // that no listed process holds
	hiddenChecks     = 3         // in a row, since lists of processes lag behind
)

// desktop names what draws desktops, in lower case. Each holds memory of the device that
// it draws with, all day long.
var desktop = []string{
	"xorg", "x", "xwayland", "gnome-shell", "mutter", "kwin_x11", "kwin_wayland", "plasmashell", "ksmserver", "cinnamon",
	"xfwm4", "marco", "compiz", "muffin", "weston", "sway", "hyprland", "wayfire", "labwc", "river", "niri", "cosmic-comp",
	"gamescope", "gdm", "gdm-x-session", "sddm", "sddm-greeter", "lightdm", "picom", "nvidia-settings",
	"xdg-desktop-portal", "xdg-desktop-portal-gnome", "xdg-desktop-portal-kde", "dwm.exe", "explorer.exe", "windowserver",
}

// ownerKind says whose a process is.
type ownerKind int

const (
	ownedByUser   ownerKind = iota // the owner's, as far as is known
	ownedByNobody                  // it has ended, or is not in this machine's view
	ownedByTask                    // of a task of this worker or of another one here
	ownedByRoot                    // of the user root, and no task's
)

// ownerFunc tells whose processes are.
type ownerFunc func(pid int) ownerKind

// ownerUse says what of the owner's is on a device, "" for nothing. It returns
// known if that could be found out, and hidden if memory is held of which no
// process is known.
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
	// Games and others that only draw are not listed by all tools. Where the tool
	// does not even list the tasks, as in a container, nothing follows from that.
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

// ownerTracker follows what the owner does with each device.
type ownerTracker struct {
	coolDown time.Duration
	uses     map[string]*deviceUse // by UUID
}

// deviceUse is what is known of a device that the owner uses, or may.
type deviceUse struct {
	why      string    // "" if only hidden memory was seen, too few times yet
	lastUsed time.Time // the owner was seen there
	lastRead time.Time // something was seen of the device
	hidden   int       // looks in a row
}

// update takes what the devices say and returns those that the owner has, and why.
// given tells the devices that tasks hold.
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
