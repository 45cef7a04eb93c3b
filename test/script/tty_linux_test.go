package script

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal is a command with its own terminal.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File
	done   chan struct{} // closed when all output is read

	mu   sync.Mutex
	seen bytes.Buffer // output after the last match of expect
	all  bytes.Buffer
}

func terminalCommands(at map[*testscript.TestScript]*terminal, mu *sync.Mutex) map[string]func(*testscript.TestScript, bool, []string) {
	of := func(ts *testscript.TestScript) *terminal {
		mu.Lock()
		defer mu.Unlock()
		return at[ts]
	}
	return map[string]func(*testscript.TestScript, bool, []string){
		// tty CMD ARG… runs a command in a terminal of 24 lines and 100 columns.
		"tty": func(ts *testscript.TestScript, _ bool, args []string) {
			t := openTerminal(ts, args)
			mu.Lock()
			defer mu.Unlock()
			at[ts] = t
		},
		// expect TEXT waits until the terminal shows the text, in which \r\n is a new line.
		"expect": func(ts *testscript.TestScript, _ bool, args []string) {
			of(ts).expect(ts, strings.ReplaceAll(args[0], `\r\n`, "\r\n"))
		},
		// type TEXT types; \x03 is Ctrl-C.
		"type": func(ts *testscript.TestScript, _ bool, args []string) {
			keys, err := strconv.Unquote(`"` + args[0] + `"`)
			ts.Check(err)
			_, err = of(ts).master.WriteString(keys)
			ts.Check(err)
		},
		// signals waits until the terminal makes a signal of Ctrl-C, which it does not between a prompt for a secret and its read.
		"signals": func(ts *testscript.TestScript, _ bool, _ []string) {
			raw, err := of(ts).master.SyscallConn()
			ts.Check(err)
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				var mode *unix.Termios
				ts.Check(raw.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }))
				ts.Check(err)
				if mode.Lflag&unix.ISIG != 0 {
					return
				}
				if time.Now().After(end) {
					ts.Fatalf("Ctrl-C is no signal at this terminal")
				}
			}
		},
		// hides TEXT checks that the terminal has not shown the text.
		"hides": func(ts *testscript.TestScript, _ bool, args []string) {
			t := of(ts)
			t.mu.Lock()
			defer t.mu.Unlock()
			if strings.Contains(t.all.String(), args[0]) {
				ts.Fatalf("the terminal shows %q: %q", args[0], t.all.String())
			}
		},
		// ends STATUS waits for the end of the command.
		"ends": func(ts *testscript.TestScript, _ bool, args []string) { of(ts).waitExit(ts, args[0]) },
	}
}

func openTerminal(ts *testscript.TestScript, args []string) *terminal {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	ts.Check(err)
	var n int
	raw, err := master.SyscallConn()
	ts.Check(err)
	var ioctl error
	ts.Check(raw.Control(func(fd uintptr) {
		ioctl = errors.Join(
			unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0),
			unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}),
		)
		if ioctl == nil {
			n, ioctl = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	ts.Check(ioctl)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	ts.Check(err)
	bin, err := exec.LookPath(args[0])
	ts.Check(err)
	t := &terminal{cmd: exec.Command(bin, args[1:]...), master: master, done: make(chan struct{})}
	t.cmd.Dir = ts.Getenv("WORK")
	t.cmd.Env = environment(ts)
	t.cmd.Env = append(t.cmd.Env, "TERM=xterm")
	t.cmd.Stdin, t.cmd.Stdout, t.cmd.Stderr = slave, slave, slave
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(t.cmd.Start())
	ts.Check(slave.Close())
	go t.read()
	ts.Defer(func() {
		_ = t.cmd.Process.Kill()
		_ = t.cmd.Wait()
		_ = master.Close()
		<-t.done
	})
	return t
}

// read collects the output until the last process has closed the terminal.
func (t *terminal) read() {
	defer close(t.done)
	buf := make([]byte, 4096)
	for {
		n, err := t.master.Read(buf)
		t.mu.Lock()
		t.seen.Write(buf[:n])
		t.all.Write(buf[:n])
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (t *terminal) expect(ts *testscript.TestScript, text string) {
	for end := time.Now().Add(commandTimeout); ; time.Sleep(10 * time.Millisecond) {
		t.mu.Lock()
		shown := t.seen.String()
		if _, rest, ok := strings.Cut(shown, text); ok {
			t.seen.Reset()
			t.seen.WriteString(rest)
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		if time.Now().After(end) {
			ts.Fatalf("want %q on the terminal, got %q", text, shown)
		}
	}
}

func (t *terminal) waitExit(ts *testscript.TestScript, status string) {
	kill := time.AfterFunc(commandTimeout, func() { _ = t.cmd.Process.Kill() })
	_ = t.cmd.Wait() // ProcessState has the status
	kill.Stop()
	if got := strconv.Itoa(t.cmd.ProcessState.ExitCode()); got != status {
		t.mu.Lock()
		defer t.mu.Unlock()
		ts.Fatalf("the command at the terminal ended with %s, want %s; it shows %q", got, status, t.seen.String())
	}
}
