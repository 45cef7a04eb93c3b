package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// systemd installs a unit: that of the package, or one of its own, with the options of this worker in a drop-in.
type systemd struct{ *Host }

const (
	unitName    = "muster-worker.service"
	programPath = "/usr/bin/muster" // in the units of package deploy
)

// dir is the directory of the administrator's units, or of the user's.
func (s *systemd) dir() string {
	if s.user {
		return filepath.Join(s.config, "systemd", "user")
	}
	return "/etc/systemd/system"
}

func (s *systemd) unitFile() string { return filepath.Join(s.dir(), unitName) }
func (s *systemd) dropIn() string   { return filepath.Join(s.dir(), unitName+".d", "50-install.conf") }

// packaged reports whether a package of Muster has installed the unit.
func (s *systemd) packaged() bool {
	for _, dir := range []string{"/usr/lib/systemd", "/lib/systemd", "/usr/local/lib/systemd"} {
		if s.exists(filepath.Join(dir, map[bool]string{true: "user", false: "system"}[s.user], unitName)) {
			return true
		}
	}
	return false
}

// isOwn reports whether the unit in dir was written by this package; err is for one that was not.
func (s *systemd) isOwn() (bool, error) {
	text, err := os.ReadFile(s.path(s.unitFile()))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, muster.Errorf(muster.Invalid, "cannot read the unit: %w", err)
	case !strings.Contains(string(text), marker):
		return false, muster.Errorf(muster.Conflict, "%s exists, and muster worker install has not written it: stop its service and remove the file first", s.unitFile())
	default:
		return true, nil
	}
}

func (s *systemd) owned() []string {
	if own, err := s.isOwn(); err != nil || !own {
		return []string{s.dropIn()}
	}
	return []string{s.dropIn(), s.unitFile()}
}

func (s *systemd) files(service *Service) ([]file, error) {
	if _, err := s.isOwn(); err != nil {
		return nil, err
	}
	var list []file
	if !s.packaged() {
		name := "systemd/" + unitName
		if s.user {
			name = "systemd/user/" + unitName
		}
		text, err := deploy.Files.ReadFile(name)
		if err != nil {
			return nil, muster.Errorf(muster.Internal, "no unit: %w", err)
		}
		list = append(list, file{s.unitFile(), "# " + marker + ".\n" + strings.ReplaceAll(string(text), "ExecStart="+programPath, "ExecStart="+quoteUnit(service.Program)), 0o644})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s. For other settings: systemctl %sedit muster-worker\n[Service]\n", marker, s.userFlag())
	if s.hasToken(service) {
		fmt.Fprintf(&text, "Environment=%s\n", quoteUnit("MUSTER_JOIN_TOKEN_FILE="+s.tokenFile()))
	}
	for _, v := range service.Env {
		fmt.Fprintf(&text, "Environment=%s\n", quoteUnit(v))
	}
	text.WriteString("ExecStart=\nExecStart=" + quoteUnit(service.Program))
	for _, arg := range service.Args {
		text.WriteString(" " + strings.ReplaceAll(quoteUnit(arg), "$", "$$"))
	}
	text.WriteString("\n")
	return append(list, file{s.dropIn(), text.String(), 0o644}), nil
}

// userFlag is an option of systemctl and journalctl, with a space.
func (s *systemd) userFlag() string {
	if s.user {
		return "--user "
	}
	return ""
}

// systemctl returns a command of systemctl.
func (s *systemd) systemctl(args ...string) []string {
	return append(strings.Fields("systemctl "+s.userFlag()), args...)
}

func (s *systemd) commands() [][]string {
	list := [][]string{s.systemctl("daemon-reload"), s.systemctl("enable", unitName), s.systemctl("restart", unitName)}
	if s.user {
		list = append(list, []string{optionalCommand, "loginctl", "enable-linger"})
	}
	return list
}

func (s *systemd) stopCommands() [][]string {
	if !s.packaged() && !s.exists(s.unitFile()) {
		return nil // the package was removed, which stopped the service
	}
	return [][]string{s.systemctl("disable", "--now", unitName)}
}

func (s *systemd) reloadCommands() [][]string { return [][]string{s.systemctl("daemon-reload")} }

func (s *systemd) hints() string {
	text := fmt.Sprintf("State:  systemctl %[1]sstatus muster-worker\nLog:    journalctl %[1]s-u muster-worker -f\nRemove: muster worker uninstall%s\n",
		s.userFlag(), map[bool]string{true: " --user"}[s.user])
	if u, err := user.Current(); s.user && err == nil && !s.exists("/var/lib/systemd/linger/"+u.Username) {
		text += "It stops when you log out, until an administrator runs: loginctl enable-linger " + u.Username + "\n"
	}
	return text
}

const connectLimit = time.Minute

func (s *systemd) logCommand() []string {
	return append(strings.Fields("journalctl "+s.userFlag()), "-u", unitName, "-n", "15", "--no-pager", "-o", "cat")
}

// awaitConnected waits until the service reports that it is connected (workerd.Worker.Summary).
func (s *systemd) awaitConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	for {
		out, err := output(ctx, s.systemctl("show", "-p", "ActiveState", "-p", "StatusText", "-p", "NRestarts", unitName)...)
		if ctx.Err() == nil && err != nil {
			return commandError(s.systemctl("show"), out, err)
		}
		state := map[string]string{}
		for line := range strings.Lines(out) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			state[name] = value
		}
		if strings.HasPrefix(state["StatusText"], "connected to ") {
			return nil
		}
		ended := state["ActiveState"] == "failed" || state["ActiveState"] == "inactive" || state["NRestarts"] != "" && state["NRestarts"] != "0"
		if !ended && backoff.Sleep(ctx, 200*time.Millisecond) == nil {
			continue
		}
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return cause
		}
		return muster.Errorf(muster.Unavailable, "the service is installed, but the worker is not connected (%s): correct what its log says, and repeat this command", describe(state))
	}
}

// describe returns the state of the service for a message.
func describe(state map[string]string) string {
	if text := state["StatusText"]; text != "" {
		return state["ActiveState"] + ", " + text
	}
	return state["ActiveState"]
}

// plainWord matches text that units need not quote.
var plainWord = lazyregexp.New(`^[A-Za-z0-9_@+=:,./-]+$`)

// quoteUnit quotes one word for a setting of a unit: see systemd.syntax(7) and "Specifiers" in systemd.unit(5).
func quoteUnit(s string) string {
	if plainWord.Get().MatchString(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '%':
			b.WriteString("%%")
		case r == utf8.RuneError && n == 1 || unicode.IsControl(r) && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}
