package script

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/pty"
	"github.com/muster-dev/muster/internal/cli"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/hostile"
	"github.com/muster-dev/muster/internal/testkit"
)

// attackedCommand is a use of a command at a terminal, with servers that attack it.
type attackedCommand struct {
	name    string // as in docs/cli.md, without muster
	args    string // below the name; {} is a script that prints the payload
	until   string // what the terminal shows before keys are typed
	keys    string
	kind    outputKind
	unnamed bool   // it does not show why a server refuses a request
	local   string // why no server's text reaches the command; it is not run
}

// outputKind is what the output may have beside text and the program's styles.
type outputKind int

const (
	messages outputKind = iota // redrawn status lines
	stream                     // what a task wrote, or a template selects: carriage returns, backspaces, lines
	redrawn                    // a table that is redrawn in place
	drawn                      // a program that draws on the whole screen
)

const (
	ownData = "it shows what this machine and its own files have"
	ownLog  = "it writes a log: cli/app TestLogsAtATerminal"
	group   = "without a command it prints its help"
)

// attackedCommands has at least one row for each command. Job 1 runs, job 2 has failed, job 3 waits, job 4 has a result and an artifact.
var attackedCommands = []attackedCommand{
	{name: "login", args: "$URL --token $MUSTER_TOKEN"},
	{name: "context", local: group}, {name: "context list", local: ownData}, {name: "context use", local: ownData}, {name: "context delete", local: ownData},
	{name: "ps"}, {name: "ps", args: "-o wide"}, {name: "ps", args: "-q"}, {name: "ps", args: "-o json"}, {name: "ps", args: "-o yaml"}, {name: "ps", args: "-o name"},
	{name: "ps", args: "-o jsonpath={.name}", kind: stream}, {name: "ps", args: "--watch", until: "evil", keys: "\x03", kind: redrawn},
	{name: "job", args: "1 2 3 4"}, {name: "job", args: "4 -o json"},
	{name: "tasks", args: "1"}, {name: "tasks", args: "4 -o yaml"},
	{name: "logs", args: "1", kind: stream}, {name: "logs", args: "-t 2"}, {name: "logs", args: "1 2"},
	{name: "usage", args: "2"}, {name: "usage", args: "2 -o json"},
	{name: "events", args: "2.0 --no-follow"}, {name: "events", args: "1.0 -o json", until: "FAKE", keys: "\x03"},
	{name: "wait", args: "2"}, {name: "explain", args: "3"}, {name: "explain", args: "2"},
	{name: "result", args: "4"}, {name: "result", args: "4 -o yaml"},
	{name: "get", args: "4 --list"}, {name: "get", args: "4"},
	{name: "top", until: "FAKE", keys: "q", kind: drawn},
	{name: "exec", args: "--tty=false 1 -- sh {}", kind: stream}, {name: "exec", args: "-it 1 -- sh {}", kind: drawn},
	{name: "shell", args: "1", until: "$ ", keys: "sh {}; exit\n", kind: drawn},
	{name: "cp", args: "1:evil.sh -"}, {name: "cp", args: "1:none ."},
	{name: "run", args: "--name evil -- sh {}", kind: stream}, {name: "run", args: "-d -- true"},
	{name: "submit", args: "spec.yaml"}, {name: "submit", args: "spec.yaml -o json"}, {name: "rerun", args: "4"}, {name: "plan", args: "spec.yaml"},
	{name: "kinds"}, {name: "kinds show", args: "embedding"}, {name: "kinds check", local: ownData},
	{name: "edit", args: "3 --priority 5"}, {name: "keep", args: "4"}, {name: "unkeep", args: "4"}, {name: "cancel", args: "3"}, {name: "retry", args: "2"}, {name: "rm", args: "4"},
	{name: "workers"}, {name: "workers", args: "-q"}, {name: "workers show", args: "rig"}, {name: "workers pause", args: "rig"}, {name: "workers resume", args: "rig"}, {name: "workers heal", args: "rig"}, {name: "workers reset", args: "none"}, {name: "workers approve", args: "rig"},
	{name: "workers drain", args: "rig --deadline 1h", until: "draining", keys: "\x03"}, {name: "workers remove", args: "none"},
	{name: "keys", local: group}, {name: "keys list"}, {name: "keys create", args: "--name evil"}, {name: "keys rotate", args: "none"}, {name: "keys revoke", args: "none"},
	{name: "schedule", local: group}, {name: "schedule create", args: "evil spec.yaml --cron @yearly"}, {name: "schedule list"}, {name: "schedule show", args: "evil"}, {name: "schedule pause", args: "evil"},
	{name: "schedule resume", args: "evil"}, {name: "schedule run", args: "evil"}, {name: "schedule delete", args: "evil"},
	{name: "cache", local: group}, {name: "cache list"}, {name: "cache explain", args: "1.0"}, {name: "cache clear", args: "--all"},
	{name: "secrets", local: group}, {name: "secrets list"}, {name: "secrets set", args: "HF_TOKEN --file spec.yaml"}, {name: "secrets delete", args: "HF_TOKEN"},
	{name: "notify", local: group}, {name: "notify list"}, {name: "notify set", args: "https://example.org/"}, {name: "notify deliveries"}, {name: "notify test", args: "https://example.net/"},
	{name: "notify delete", args: "https://example.org/"},
	{name: "audit", local: group}, {name: "audit list"}, {name: "audit follow", args: "--since 1d", until: "FAKE", keys: "\x03"}, {name: "audit verify"}, {name: "audit export"},
	{name: "retention", local: group}, {name: "retention list"}, {name: "retention set", args: "--keep-jobs 9d"}, {name: "retention delete"}, {name: "prune", args: "--dry-run"},
	{name: "backup", args: "$DATA.backup"}, {name: "restore", local: ownData},
	{name: "doctor", unnamed: true}, {name: "bench", local: group}, {name: "bench compare", args: "4"},
	{name: "worker", args: "--name evil --data $DATA", until: "retrying", keys: "\x03"},
	{name: "worker install", local: ownData}, {name: "worker uninstall", local: ownData},
	{name: "worker qubix", local: ownLog}, {name: "worker dtf", local: ownLog}, {name: "worker trainforge", local: ownLog}, {name: "worker mloc", local: ownLog},
	{name: "bridge", local: group}, {name: "bridge qubix", local: ownLog}, {name: "bridge dtf", local: ownLog}, {name: "bridge trainforge", local: ownLog}, {name: "bridge mloc", local: ownLog},
	{name: "up", local: ownLog}, {name: "server", local: ownLog},
	{name: "probe", local: ownData}, {name: "runtime", local: ownData}, {name: "runtime list", local: ownData}, {name: "runtime install", local: ownData}, {name: "runtime check", local: ownData}, {name: "runtime remove", local: ownData},
	{name: "version", local: ownData}, {name: "completion", local: group},
	{name: "completion bash", local: ownData}, {name: "completion zsh", local: ownData}, {name: "completion fish", local: ownData}, {name: "completion pwsh", local: ownData},
}

// TestHostileServersAtATerminal runs all commands at a terminal with a server whose answers, and a task whose output, would act on it, and with one
// that refuses each request with such an error.
func TestHostileServersAtATerminal(t *testing.T) {
	reference, err := cli.Reference()
	testkit.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^#{3,4} muster (.*)$`).FindAllStringSubmatch(reference, -1) {
		if !slices.ContainsFunc(attackedCommands, func(c attackedCommand) bool { return c.name == m[1] }) {
			t.Errorf("muster %s has no row in attackedCommands: say how it shows what a server sends, or why it shows nothing", m[1])
		}
	}
	dir := mustertest.SharedDir(t)
	script := filepath.Join(dir, "evil.sh")
	var octal strings.Builder
	for i := range len(hostile.Payload) {
		fmt.Fprintf(&octal, `\%03o`, hostile.Payload[i])
	}
	write := func(name, text string) {
		t.Helper()
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("evil.sh", "printf '"+octal.String()+"'\nprintf '"+octal.String()+"' >&2\n")
	write("spec.yaml", "name: evil\nrun: ['true']\n")
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Up: true, Flags: []string{"--name", "rig", "--allow-read", dir}})
	c.AwaitWorkerState("rig", muster.WorkerActive)
	submit := func(shell string, change func(*muster.Spec)) muster.Job {
		t.Helper()
		s := mustertest.ShellSpec("evil", shell)
		if change != nil {
			change(s)
		}
		return c.Submit(s)
	}
	running := submit("sh "+script+"; cp "+script+" evil.sh; sleep 600", nil)
	failed := submit("sh "+script+"; exit 3", nil)
	submit("true", func(s *muster.Spec) { s.Tasks[0].Where.Tags = []string{"nowhere"} })
	result := submit("sh "+script+" 2>/dev/null > $MUSTER_OUT/file; printf '{\"a\":\"\\\\u001b[2J\\\\u009b\\\\u202e\"}' > $MUSTER_OUT/result.json", nil)
	c.AwaitRunning(running.ID, 1)
	c.Wait(failed.ID, time.Minute)
	c.Wait(result.ID, time.Minute)
	c.Await("job 1 has output", time.Minute, func() error {
		for l, err := range c.Client.Logs(t.Context(), muster.TaskID{Job: running.ID}, client.LogOptions{}) {
			if err == nil && bytes.Contains(l.Data, []byte("FAKE")) {
				return nil
			}
		}
		return errors.New("it has none")
	})

	const minAttacks = 40
	const changing, refusing = "a server that changes all texts", "a server that refuses all requests"
	servers := map[string]string{changing: hostile.Proxy(t, "http://"+c.Addr), refusing: hostile.Refuse(t)}
	for _, server := range []string{changing, refusing} {
		url, data, attacks := servers[server], filepath.Join(t.TempDir(), "data"), 0
		env := append(os.Environ(), "TERM=xterm", "MUSTER_SERVER="+url, "MUSTER_TOKEN="+mustertest.AdminToken, "MUSTER_JOIN_TOKEN="+mustertest.JoinToken, "MUSTER_CONFIG="+filepath.Join(t.TempDir(), "context.json"))
		for _, row := range attackedCommands {
			if row.local != "" {
				continue
			}
			args := strings.Fields(strings.NewReplacer("$URL", url, "$DATA", data, "$MUSTER_TOKEN", mustertest.AdminToken, "{}", script).Replace(row.name + " " + row.args))
			shown := atTerminal(t, dir, env, row.until, strings.ReplaceAll(row.keys, "{}", script), append([]string{mustertest.Program(t)}, args...)...)
			if err := checkTerminal(row.kind, shown); err != nil {
				t.Errorf("muster %s, with %s: %v in %q", strings.Join(args, " "), server, err, shown)
			}
			if strings.Contains(shown, "FAKE") {
				attacks++
			} else if server == refusing && !row.unnamed {
				t.Errorf("muster %s does not show why %s refuses it: %q", strings.Join(args, " "), server, shown)
			}
		}
		for _, args := range [][]string{{"job", "2"}, {"logs", "1"}, {"exec", "--tty=false", "1", "--", "sh", script}} { // without styles
			shown := atTerminal(t, dir, append(env, "TERM=dumb"), "", "", append([]string{mustertest.Program(t)}, args...)...)
			if strings.Contains(shown, "\x1b") || !strings.Contains(shown, "FAKE") {
				t.Errorf("muster %s at a dumb terminal, with %s, shows %q", strings.Join(args, " "), server, shown)
			}
		}
		if attacks < minAttacks {
			t.Errorf("%s reaches the terminal with %d commands only", server, attacks)
		}
	}
}

// ownSequences are what the program may write at a terminal: styles, and before the next text of a status line or below a table.
var ownSequences = map[outputKind]*regexp.Regexp{
	messages: regexp.MustCompile(`\x1b\[(0|1|2|31|32|33|34)m|\r\x1b\[K`),
	stream:   regexp.MustCompile(`\x1b\[(0|1|2|31|32|33|34)m|\r\x1b\[K|[\r\x08]`),
	redrawn:  regexp.MustCompile(`\x1b\[(0|1|2|31|32|33|34)m|\x1b\[[0-9]*A|\x1b\[K\r?|\x1b\[J`),
}

// checkTerminal returns an error if an output has something that may act on the terminal.
func checkTerminal(kind outputKind, shown string) error {
	if own := ownSequences[kind]; own != nil {
		rest := strings.ReplaceAll(own.ReplaceAllString(shown, ""), "\r\n", "\n")
		for _, r := range rest {
			if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e') {
				return fmt.Errorf("%q", r)
			}
		}
		if kind != stream && strings.Contains(rest, "\nmuster: FAKE") {
			return errors.New("a faked message")
		}
		return nil
	}
	for _, part := range []string{"\x1b]0;X", "\x1b]52", "\x1b[6n", "\u009b", "\u009d"} {
		if strings.Contains(shown, part) {
			return fmt.Errorf("%q", part)
		}
	}
	return nil
}

// atTerminal runs a command in a terminal of 24 lines and 100 columns until it ends, types keys when it shows a text, and returns all that it shows.
func atTerminal(t *testing.T, dir string, env []string, until, keys string, args ...string) string {
	t.Helper()
	master, slave, err := pty.Open()
	testkit.NoError(t, err)
	defer master.Close()
	testkit.NoError(t, pty.Resize(master, 24, 100))
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.NoError(t, cmd.Start())
	testkit.NoError(t, slave.Close())
	var mu sync.Mutex
	var all bytes.Buffer
	shown := func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			all.Write(buf[:n])
			mu.Unlock()
			if err != nil { // the last process has closed the terminal
				return
			}
		}
	})
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // commands may fail
		close(ended)
	}()
	typed := keys == ""
	limit := time.After(commandTimeout)
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-limit:
			_ = cmd.Process.Kill()
			<-ended
			t.Errorf("%s has not ended; it shows %q", strings.Join(args, " "), shown())
			running = false
		case <-time.After(20 * time.Millisecond):
			if !typed && strings.Contains(shown(), until) {
				typed = true
				_, err := master.WriteString(keys)
				testkit.NoError(t, err)
			}
		}
	}
	reader.Wait()
	return shown()
}
