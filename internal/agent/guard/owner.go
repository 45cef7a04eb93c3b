package guard

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
	desktopMost = 1 << 30   // bytes of a device that what draws the desktop may hold
	daemonMost  = 256 << 20 // that a process of root's may hold
	hiddenMost  = 1 << 30   // that no listed process holds
	hiddenLooks = 3         // in a row, since lists of processes lag behind
)

// desktop names what draws desktops, in lower case. Each holds memory of the device that
// it draws with, all day long.
var desktop = []string{
	"xorg", "x", "xwayland", "gnome-shell", "mutter", "kwin_x11", "kwin_wayland", "plasmashell", "ksmserver", "cinnamon",
	"xfwm4", "marco", "compiz", "muffin", "weston", "sway", "hyprland", "wayfire", "labwc", "river", "niri", "cosmic-comp",
	"gamescope", "gdm", "gdm-x-session", "sddm", "sddm-greeter", "lightdm", "picom", "nvidia-settings",
	"xdg-desktop-portal", "xdg-desktop-portal-gnome", "xdg-desktop-portal-kde", "dwm.exe", "explorer.exe", "windowserver",
}

// whose says whose a process is.
type whose int

const (
	somebody whose = iota // the owner's, as far as is known
	nobody                // it has ended, or is not in this machine's view
	ofTask                // of a task of this worker or of another one here
	ofRoot                // of the user root, and no task's
)

// kin tells whose processes are.
type kin func(pid int) whose

// wants says what of the owner's is on a device, "" for nothing. It returns
// known if that could be found out, and hidden if memory is held of which no
// process is known.
func wants(r *gpu.Reading, of kin, given bool) (why string, hidden, known bool) {
	if r.Processes == nil {
		return "", false, false
	}
	var biggest *gpu.Process
	listed, countable, mine := muster.Size(0), true, false
	for i := range r.Processes {
		p := &r.Processes[i]
		listed += p.Memory
		countable = countable && p.Memory > 0
		switch w := of(p.PID); {
		case w == ofTask:
			mine = true
		case w == nobody:
		case w == ofRoot && p.Memory < daemonMost:
		case isDesktop(p.Name) && p.Memory < desktopMost:
		case biggest == nil || p.Memory > biggest.Memory:
			biggest = p
		}
	}
	if biggest != nil {
		return fmt.Sprintf("in use by its owner: pid %d%s", biggest.PID, named(biggest.Name)), false, true
	}
	// Games and others that only draw are not listed by all tools. Where the tool
	// does not even list the tasks, as in a container, nothing follows from that.
	hidden = countable && r.Memory != nil && *r.Memory-listed > hiddenMost && (mine || !given)
	return "", hidden, true
}

func isDesktop(name string) bool { return slices.Contains(desktop, strings.ToLower(base(name))) }

func base(name string) string { return path.Base(strings.ReplaceAll(name, `\`, "/")) }

func named(name string) string {
	if name == "" || strings.HasPrefix(name, "[") { // as in [Not Found]
		return ""
	}
	return " " + base(name)
}

// owner follows what the owner does with each device.
type owner struct {
	coolDown time.Duration
	uses     map[string]*use // by UUID
}

// use is what is known of a device that the owner uses, or may.
type use struct {
	why    string    // "" if only hidden memory was seen, too few times yet
	last   time.Time // the owner was seen there
	looked time.Time // something was seen of the device
	hidden int       // looks in a row
}

// see takes what the devices say and returns those that the owner has, and why.
// given tells the devices that tasks hold.
func (o *owner) see(now time.Time, each []gpu.Reading, given map[string]bool, of kin) map[string]string {
	for i := range each {
		o.look(now, &each[i], given, of)
	}
	busy := map[string]string{}
	for id, u := range o.uses {
		if now.Sub(u.looked) >= blindFor {
			*u = use{}
		}
		if u.why != "" {
			busy[id] = u.why
		} else if u.hidden == 0 {
			delete(o.uses, id)
		}
	}
	return busy
}

func (o *owner) look(now time.Time, r *gpu.Reading, given map[string]bool, of kin) {
	why, hidden, known := wants(r, of, given[r.UUID])
	u := o.uses[r.UUID]
	if !known || u == nil && why == "" && !hidden {
		return
	}
	if u == nil {
		u = &use{}
		o.uses[r.UUID] = u
	}
	u.looked = now
	if !hidden {
		u.hidden = 0
	} else if u.hidden++; u.hidden >= hiddenLooks {
		why = "in use by its owner: it holds memory of processes that its driver does not list, such as a game"
	}
	if why != "" {
		u.why, u.last = why, now
	} else if u.why != "" && now.Sub(u.last) >= o.coolDown {
		u.why = ""
	}
}
