package execwire

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Subprotocol is the WebSocket subprotocol of clients.
const Subprotocol = "muster.exec.v1"

// The limits of a connection.
const (
	Window     = 1 << 20   // bytes of data of one direction that are under way
	MaxChunk   = 64 << 10  // bytes of data in one frame
	MaxFrame   = 256 << 10 // bytes of a frame
	MaxCommand = 64 << 10  // bytes of all texts of a Start
)

// The times of a connection.
const (
	KeepAlive    = 15 * time.Second // between frames of a side that has nothing to send
	Silence      = 60 * time.Second // without a frame, then the other side is gone
	OpenTimeout  = 15 * time.Second // for the worker to connect
	StartTimeout = 10 * time.Second // for the client to send Start
)

// The streams of a command.
const (
	Stdin  = "stdin"
	Stdout = "stdout"
	Stderr = "stderr"
)

// Frame is one message. One of its fields is set, and none in a keep-alive; Stream is of Data or EOF.
type Frame struct {
	Start  *Start `json:"start,omitempty"`  // client, first frame
	Ready  bool   `json:"ready,omitempty"`  // worker: the command runs, or the copy begins
	Stream string `json:"stream,omitempty"` // Stdin, Stdout or Stderr
	Data   []byte `json:"data,omitempty"`   // at most MaxChunk
	EOF    bool   `json:"eof,omitempty"`
	Ack    int    `json:"ack,omitempty"` // bytes of Data that the sender of Ack has consumed
	Resize *Size  `json:"resize,omitempty"`
	Signal string `json:"signal,omitempty"` // one of muster.TaskSignals
	Note   string `json:"note,omitempty"`   // worker: a line for people, such as of a skipped file
	Exit   *Exit  `json:"exit,omitempty"`   // worker, last frame
	Error  *Error `json:"error,omitempty"`  // worker or server, last frame
}

// Start is what to do: exactly one of Command, Get and Put.
type Start struct {
	Command *Command `json:"command,omitempty"`
	Get     *Get     `json:"get,omitempty"`
	Put     *Put     `json:"put,omitempty"`

	Requester string `json:"requester,omitempty"` // the name of the client's key; set by the server
}

// Command is a command to execute in the task.
type Command struct {
	Argv  []string `json:"argv"`
	Env   []string `json:"env,omitempty"` // NAME=VALUE, in addition to the task's
	Dir   string   `json:"dir,omitempty"` // relative to the task's folder; "" means that folder
	TTY   bool     `json:"tty,omitempty"` // it has a terminal; its output is all in Stdout
	Stdin bool     `json:"stdin,omitempty"`
	Size  Size     `json:"size,omitzero"`  // of the terminal
	Term  string   `json:"term,omitempty"` // $TERM
}

// Get copies Path from the task: a tar archive on Stdout.
type Get struct {
	Path string `json:"path"` // see ParsePath
}

// Put copies a tar archive on Stdin to the task.
type Put struct {
	Path    string `json:"path"`              // see ParsePath
	Name    string `json:"name,omitempty"`    // the first element of the paths in the archive, which a copy may rename
	Extract bool   `json:"extract,omitempty"` // unpack it in the folder Path, with its names
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
}

// Exit is how the command ended.
type Exit struct {
	Code      int    `json:"code"`                 // 128+n for signal n; 126 or 127 if it could not be executed
	Signal    string `json:"signal,omitempty"`     // its name, "" for none
	TaskEnded bool   `json:"task_ended,omitempty"` // it was killed because its task ended
}

// Error is why the connection ends without an Exit.
type Error struct {
	Code    muster.Code `json:"code"`
	Message string      `json:"message"`
}

// Err returns the error as the server's clients see errors.
func (e *Error) Err() error { return muster.Errorf(e.Code, "%s", e.Message) }

// Target is the task of one connection, and who connects: for the server's checks and its log.
type Target struct {
	Attempt    muster.AttemptID
	Worker     muster.WorkerID
	WorkerName string
	KeyID      string
	KeyName    string
	Address    string // of the client
}

// Check returns an Invalid error that names the field, unless s is complete and within its limits.
func (s *Start) Check() error {
	n := 0
	for _, set := range []bool{s.Command != nil, s.Get != nil, s.Put != nil} {
		if set {
			n++
		}
	}
	if n != 1 {
		return muster.Errorf(muster.Invalid, "start: must have exactly one of command, get and put")
	}
	switch {
	case s.Command != nil:
		return s.Command.check()
	case s.Get != nil:
		_, _, err := ParsePath(s.Get.Path)
		return err
	}
	if strings.ContainsAny(s.Put.Name, "/\x00") || s.Put.Name == ".." || len(s.Put.Name) > 255 {
		return muster.Errorf(muster.Invalid, "put.name is %q: it must be the name of a file", s.Put.Name)
	}
	_, _, err := ParsePath(s.Put.Path)
	return err
}

// maxSide is the most rows or columns of a terminal.
const maxSide = 1 << 15

func (c *Command) check() error {
	size := len(c.Dir) + len(c.Term)
	for _, text := range slices.Concat(c.Argv, c.Env) {
		if strings.ContainsRune(text, 0) {
			return muster.Errorf(muster.Invalid, "the command has a zero byte")
		}
		size += len(text) + 1
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return muster.Errorf(muster.Invalid, "environment variable %q: write NAME=VALUE", e)
		}
	}
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return muster.Errorf(muster.Invalid, "there is no command to execute")
	case size > MaxCommand:
		return muster.Errorf(muster.Invalid, "the command and its environment have %d bytes: the most is %d", size, MaxCommand)
	case strings.ContainsRune(c.Dir, 0) || strings.ContainsAny(c.Term, "\x00\n"):
		return muster.Errorf(muster.Invalid, "the working directory or the name of the terminal is invalid")
	}
	return c.Size.Check()
}

// Check returns an Invalid error unless the size is possible. The zero Size is.
func (s *Size) Check() error {
	if s.Rows < 0 || s.Rows > maxSide || s.Columns < 0 || s.Columns > maxSide {
		return muster.Errorf(muster.Invalid, "a terminal of %d rows and %d columns is not possible", s.Rows, s.Columns)
	}
	return nil
}

// ParsePath splits the path of a file of a task, such as "$MUSTER_OUT/a" or "a/b", into the variable of its folder, "" for the
// working folder, and a clean path in it. An absolute path is returned as it is, with variable "/": only the worker knows which folder has
// it.
func ParsePath(text string) (variable, rel string, err error) {
	if len(text) > 4096 || strings.ContainsRune(text, 0) {
		return "", "", muster.Errorf(muster.Invalid, "the path of a file in a task has at most 4096 bytes, and no zero byte")
	}
	rel = text
	if name, ok := strings.CutPrefix(text, "$"); ok {
		variable, rel, _ = strings.Cut(name, "/")
		variable = strings.TrimSuffix(strings.TrimPrefix(variable, "{"), "}")
		if variable == "" {
			return "", "", muster.Errorf(muster.Invalid, "%q has no name of a variable: write a path such as $MUSTER_OUT/file", text)
		}
	} else if strings.HasPrefix(text, "/") {
		return "/", path.Clean(text), nil
	}
	if rel = path.Clean(rel); path.IsAbs(rel) || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", "", muster.Errorf(muster.Invalid, "%q is outside the task's folder: use a path in it, or $MUSTER_OUT, $MUSTER_CHECKPOINT or $TMPDIR", text)
	}
	return variable, rel, nil
}
