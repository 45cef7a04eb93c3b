// Package install makes muster worker a service of this machine: a unit of systemd, or a job of launchd.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/cli/app"
)

// Service is the worker to install.
type Service struct {
	Program string   // absolute path
	Args    []string // of the program
	Env     []string // NAME=VALUE
	Token   string   // join token, "" for a worker that has joined
	Server  string   // URL, for messages
}

// Host is the service manager of this machine or user.
type Host struct {
	manager

	app    *app.App
	user   bool   // the user's service manager, not the machine's
	root   string // prefix of all paths, "" on this machine
	home   string // of the user
	config string // directory of the user's configuration
}

// manager is a kind of service manager.
type manager interface {
	// files returns what the service consists of, beside its token.
	files(s *Service) ([]file, error)
	// owned lists the files of an installation. The last one is needed to stop the service.
	owned() []string
	// commands start the service, also if it runs.
	commands() [][]string
	// stopCommands stop the service, and end its start with the machine.
	stopCommands() [][]string
	// reloadCommands make the manager forget removed files.
	reloadCommands() [][]string
	// awaitConnected waits until the service is connected to the server, if the manager knows that.
	awaitConnected(ctx context.Context) error
	// logCommand prints the last lines of the service's log.
	logCommand() []string
	// hints says how to see the state and the log.
	hints() string
}

// file is a file of the service.
type file struct {
	path string
	text string
	mode fs.FileMode
}

// marker is the first line of generated files.
const marker = "Written by muster worker install, which replaces this file"

// New returns the service manager of this machine, or that of the user.
func New(a *app.App, user bool) (*Host, error) {
	h := &Host{app: a, user: user}
	var err error
	if h.home, err = os.UserHomeDir(); err == nil {
		h.config, err = os.UserConfigDir()
	}
	if err != nil && user {
		return nil, muster.Errorf(muster.Invalid, "cannot find the user's directories: %w", err)
	}
	return h, h.open(runtime.GOOS, os.Geteuid())
}

// open selects the service manager for a system and a user id.
func (h *Host) open(system string, uid int) error {
	switch {
	case system == "darwin":
		h.manager = &launchd{h, uid}
	case system == "linux" && h.exists("/run/systemd/system"):
		h.manager = &systemd{h}
	default:
		return muster.Errorf(muster.Invalid, "this machine has neither systemd nor launchd: start 'muster worker' with its service manager, or in a container (see docs/install.md)")
	}
	if h.user && uid == 0 {
		return muster.Errorf(muster.Invalid, "--user installs a service of an ordinary user: run it as that user, or without --user for a service of the machine")
	}
	if !h.user && uid != 0 {
		return muster.Errorf(muster.Forbidden, "a service of the machine needs root: run it with sudo, or with --user for a service of this user, which has fewer ways to isolate tasks")
	}
	return nil
}

// DataDir returns the data directory of the service, unless an option sets it; "" means that of muster worker.
func (h *Host) DataDir() string {
	switch {
	case h.user:
		return ""
	case runtime.GOOS == "darwin":
		return "/usr/local/var/lib/muster/worker"
	default:
		return "/var/lib/muster/worker"
	}
}

// configDir is the directory of the token.
func (h *Host) configDir() string {
	if h.user {
		return filepath.Join(h.config, "muster")
	}
	return "/etc/muster"
}

func (h *Host) tokenFile() string { return filepath.Join(h.configDir(), "worker-join-token") }

// path returns the real path of a file of the service.
func (h *Host) path(name string) string { return filepath.Join(h.root, name) }

func (h *Host) exists(path string) bool {
	_, err := os.Stat(h.path(path))
	return err == nil
}

// allFiles returns the files of the service with its token.
func (h *Host) allFiles(s *Service) ([]file, error) {
	list, err := h.files(s)
	if err != nil || s.Token == "" {
		return list, err
	}
	return append([]file{{h.tokenFile(), s.Token + "\n", 0o600}}, list...), nil
}

// hasToken reports whether the service will have a join token.
func (h *Host) hasToken(s *Service) bool { return s.Token != "" || h.exists(h.tokenFile()) }

// Print writes what Install would do, without the token.
func (h *Host) Print(s *Service) error {
	list, err := h.allFiles(s)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range list {
		if f.path == h.tokenFile() {
			f.text = "(the join token)\n"
		}
		fmt.Fprintf(&text, "==> %s <==\n%s\n", f.path, f.text)
	}
	text.WriteString("==> commands <==\n")
	for _, c := range h.commands() {
		fmt.Fprintln(&text, strings.Join(c, " "))
	}
	return app.WriteOutput(h.app.Out, []byte(text.String()))
}

// Install writes the service, starts it, and waits until it is connected. A second call replaces the service; running tasks continue
// where the service manager can restart a worker without them. What an interrupted call did is completed by the next one.
func (h *Host) Install(ctx context.Context, s *Service) error {
	list, err := h.allFiles(s)
	if err != nil {
		return err
	}
	for _, f := range list {
		path := h.path(f.path)
		err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // like the other directories of services
		if err == nil {
			err = atomicfile.Write(path, []byte(f.text), f.mode)
		}
		if err != nil {
			return muster.Errorf(muster.Invalid, "cannot write the service: %w", err)
		}
	}
	if err := h.run(ctx, h.commands()); err != nil {
		return h.withLog(ctx, err)
	}
	if err := h.awaitConnected(ctx); err != nil {
		return h.withLog(ctx, err)
	}
	return app.WriteOutput(h.app.Out, fmt.Appendf(nil, "The worker is installed as a service, for the server %s.\n%s", s.Server, h.hints()))
}

// withLog adds the last lines of the service's log to an error, unless the user interrupted the command.
func (h *Host) withLog(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	log, _ := output(ctx, h.logCommand()...) // there may be none
	return muster.Errorf(muster.CodeOf(err), "%w%s", err, indent(log))
}

// Uninstall stops the service and removes it. The data of the worker stays.
func (h *Host) Uninstall(ctx context.Context) error {
	installed := false
	for _, path := range h.owned() {
		installed = installed || h.exists(path)
	}
	if !installed {
		return muster.Errorf(muster.NotFound, "no worker was installed with muster worker install%s", map[bool]string{true: " --user", false: "; one of a user is uninstalled with --user"}[h.user])
	}
	h.app.Messagef("stopping the worker; running tasks have its --shutdown-grace to end")
	if err := h.run(ctx, h.stopCommands()); err != nil {
		return err
	}
	for _, path := range append([]string{h.tokenFile()}, h.owned()...) {
		if err := os.Remove(h.path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return muster.Errorf(muster.Invalid, "cannot remove the service: %w", err)
		}
		if dir := filepath.Dir(path); dir == h.configDir() || strings.HasSuffix(dir, ".d") {
			_ = os.Remove(h.path(dir)) // unless it has other files
		}
	}
	if err := h.run(ctx, h.reloadCommands()); err != nil {
		return err
	}
	return app.WriteOutput(h.app.Out, []byte("The worker's service is removed. Its data directory stays; the server forgets the worker with muster workers remove.\n"))
}

// commandTimeout limits one command of a service manager, which waits for a drain.
const commandTimeout = 30 * time.Minute

// run runs commands until one fails. A first word "-" ignores failures.
func (h *Host) run(ctx context.Context, commands [][]string) error {
	for _, c := range commands {
		optional := c[0] == optionalCommand
		if optional {
			c = c[1:]
		}
		if out, err := output(ctx, c...); err != nil && !optional {
			return commandError(c, out, err)
		}
	}
	return nil
}

// optionalCommand precedes a command that may fail.
const optionalCommand = "-"

func commandError(command []string, out string, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return muster.Errorf(muster.Invalid, "cannot run %s: it is not on the PATH", command[0])
	}
	return muster.Errorf(muster.Unavailable, "%s failed: %w%s", strings.Join(command, " "), err, indent(out))
}

// indent returns text as lines below a message.
func indent(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
}

// output runs a command and returns the last part of what it printed.
func output(ctx context.Context, command ...string) (string, error) {
	const limit = 16 << 10
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	err := cmd.Run()
	text := out.String()
	return strings.ToValidUTF8(text[max(0, len(text)-limit):], "?"), err
}
