package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/fault"
	"github.com/muster-dev/muster/internal/tasklog"
)

// Protocol is the version of the protocol. Hello and Welcome stay compatible for all versions; the other frames of another version are not used.
const Protocol = 1

// MaxFrame is the maximum size of a frame in bytes: reports and specs are much smaller.
const MaxFrame = 32 << 20

// ToShim is one frame from the worker to the shim.
type ToShim struct {
	Seq     uint64             `json:"seq,omitempty"`   // of a request; the reply repeats it
	Resent  bool               `json:"again,omitempty"` // it was sent before, over a connection that broke
	Hello   *Hello             `json:"hello,omitempty"`
	Ping    bool               `json:"ping,omitempty"`
	Start   *run.StartSpec     `json:"start,omitempty"`
	Stop    *StopFrame         `json:"stop,omitempty"`
	Record  *RecordFrame       `json:"record,omitempty"`
	Report  *muster.Report     `json:"settle,omitempty"`
	Freeze  *FreezeFrame       `json:"freeze,omitempty"`
	Contact time.Duration      `json:"contact,omitempty"`
	Forget  []muster.AttemptID `json:"forget,omitempty"`

	// Frames of a connection for one command: Exec is in the first one, beside Hello, with its standard streams as descriptors.
	Exec   *ExecFrame `json:"exec,omitempty"`
	Signal string     `json:"signal,omitempty"` // to send to the command
}

// Hello is the first frame of a connection.
type Hello struct {
	Protocol int           `json:"protocol"`
	Key      string        `json:"key,omitempty"` // only readable for the worker
	Contact  time.Duration `json:"contact,omitempty"`
}

// StopFrame stops an attempt.
type StopFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Why     run.Stopped      `json:"why"`
	Kill    muster.Kill      `json:"how"`
}

// RecordFrame is a record of the worker for an attempt's log. Records of an attempt are written in the order in which they are sent. A frame
// without Data writes nothing: its reply says that the earlier ones are written. Without a Seq there is no reply.
type RecordFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Stream  tasklog.Stream   `json:"stream"`
	Data    []byte           `json:"data"`
}

// FreezeFrame freezes an attempt, or thaws it.
type FreezeFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	On      bool             `json:"on"`
}

// ExecFrame is a command for a running attempt. The end of its connection hangs up.
type ExecFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Argv    []string         `json:"argv"`
	Env     []string         `json:"env,omitempty"` // in addition to the attempt's
	Dir     string           `json:"dir,omitempty"`
	TTY     bool             `json:"tty,omitempty"`
}

// ExecReply is the first frame that answers an ExecFrame, and the second one when the command has ended.
type ExecReply struct {
	Started bool          `json:"started,omitempty"`
	Code    int           `json:"code,omitempty"`  // with Error: of run.ExecError
	Error   string        `json:"error,omitempty"` // why it did not start
	Exit    *run.ExecExit `json:"exit,omitempty"`
}

// ToWorker is one frame from the shim to the worker.
type ToWorker struct {
	Seq       uint64         `json:"seq,omitempty"` // of the request of this reply
	Welcome   *Welcome       `json:"welcome,omitempty"`
	Snapshot  *SnapshotFrame `json:"held,omitempty"`
	Ready     bool           `json:"ready,omitempty"` // all snapshots are sent
	Started   *StartedFrame  `json:"started,omitempty"`
	Failed    *FailedFrame   `json:"failed,omitempty"`
	Updates   []Update       `json:"news,omitempty"`
	Displaced bool           `json:"bye,omitempty"` // another worker took over
	Exec      *ExecReply     `json:"exec,omitempty"`
}

// Welcome is the reply to Hello.
type Welcome struct {
	Protocol int           `json:"protocol"`
	Build    string        `json:"build"`
	Pid      run.Pid       `json:"pid"` // of the shim
	Contact  time.Duration `json:"contact,omitempty"`
	Exec     bool          `json:"exec,omitempty"` // it takes ExecFrames; an earlier build would take the connection for that of a new worker
}

// SnapshotFrame is the state of one attempt, for a new worker.
type SnapshotFrame struct {
	run.Recovered
	Progress *muster.Progress `json:"progress,omitempty"` // all progress of the task, merged
}

// StartedFrame is the process of a started attempt.
type StartedFrame struct {
	Pid run.Pid     `json:"pid"`
	At  muster.Time `json:"at"`
}

// FailedFrame is a run.TaskError.
type FailedFrame struct {
	Reason       muster.Reason `json:"reason"`
	Message      string        `json:"message"`
	ExitCode     int           `json:"exit_code,omitempty"`
	ShuttingDown bool          `json:"ending,omitempty"` // the shim accepts no new tasks: another one may
}

// Update is the change of one attempt since the last update.
type Update struct {
	Attempt  muster.AttemptID `json:"attempt"`
	Progress *muster.Progress `json:"progress,omitempty"`
	LogSize  int64            `json:"log_size,omitempty"`
	Exit     *run.Exit        `json:"exit,omitempty"`
}

// AppendFrame appends the encoding of a frame to dst: its length in 4 bytes, big endian, and JSON. Its errors are ErrEncode, also for a frame over
// MaxFrame.
func AppendFrame(dst []byte, f any) ([]byte, error) {
	var b []byte
	err := fault.Catch(func() (err error) {
		b, err = json.Marshal(f)
		return err
	})
	if err != nil {
		return dst, fmt.Errorf("%w: %w", ErrEncode, err)
	}
	if len(b) > MaxFrame {
		return dst, fmt.Errorf("%w: a frame of %s exceeds the limit of %s", ErrEncode, muster.Size(len(b)), muster.Size(MaxFrame))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}

// FrameReader reads the frames of one direction. One goroutine at a time uses it.
type FrameReader struct {
	MaxSize int // of a frame, in bytes

	r   *bufio.Reader
	buf []byte
}

// NewFrameReader reads frames of up to MaxFrame from r, with read-ahead.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, readBufferSize), MaxSize: MaxFrame}
}

// readBufferSize is enough for most frames, or several.
const readBufferSize = 8 << 10

// ErrDecode says that a frame is invalid; later ones may be valid.
var ErrDecode = errors.New("cannot decode a frame")

// Next decodes the next frame into f. After ErrDecode it may be called again.
func (r *FrameReader) Next(f any) error {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > r.MaxSize {
		return fmt.Errorf("a frame of %s exceeds the limit of %s", muster.Size(n), muster.Size(r.MaxSize))
	}
	if cap(r.buf) < n || cap(r.buf) > maxKeptBuffer {
		r.buf = make([]byte, max(n, 4<<10))
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, f); err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return nil
}

// ErrEncode says that a frame cannot be encoded; later ones may be.
var ErrEncode = errors.New("cannot encode a frame")

// maxKeptBuffer is the maximum size of a buffer that is kept for the next frame.
const maxKeptBuffer = 64 << 10
