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

// Protocol is the version of what follows. Hello and welcome stay readable for
// every version; the rest of another one is not spoken.
const Protocol = 1

// MaxFrame is the most bytes of one frame: a report and a spec are a good deal smaller.
const MaxFrame = 32 << 20

// ToShim is one frame from the worker to the shim.
type ToShim struct {
	Seq     uint64             `json:"seq,omitempty"`   // of what is answered; the answer repeats it
	Resent  bool               `json:"again,omitempty"` // it was asked before, over a connection that broke
	Hello   *Hello             `json:"hello,omitempty"`
	Ping    bool               `json:"ping,omitempty"`
	Start   *run.StartSpec     `json:"start,omitempty"`
	Stop    *StopFrame         `json:"stop,omitempty"`
	Record  *RecordFrame       `json:"record,omitempty"`
	Report  *muster.Report     `json:"settle,omitempty"`
	Freeze  *FreezeFrame       `json:"freeze,omitempty"`
	Contact time.Duration      `json:"contact,omitempty"`
	Forget  []muster.AttemptID `json:"forget,omitempty"`
}

// Hello is the first frame of a connection.
type Hello struct {
	Protocol int           `json:"protocol"`
	Key      string        `json:"key,omitempty"` // which only the worker can read
	Contact  time.Duration `json:"contact,omitempty"`
}

// StopFrame has an attempt stopped.
type StopFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Why     run.Stopped      `json:"why"`
	Kill    muster.Kill      `json:"how"`
}

// RecordFrame is something that the worker has to say in an attempt's log. The records of an
// attempt are written in the order in which they are sent. One without Data writes nothing: its answer
// says that those before it are written. Without a Seq there is no answer.
type RecordFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Stream  tasklog.Stream   `json:"stream"`
	Data    []byte           `json:"data"`
}

// FreezeFrame has an attempt stand still, or go on.
type FreezeFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	On      bool             `json:"on"`
}

// ToWorker is one frame from the shim to the worker.
type ToWorker struct {
	Seq       uint64         `json:"seq,omitempty"` // of the frame that is answered
	Welcome   *Welcome       `json:"welcome,omitempty"`
	Snapshot  *SnapshotFrame `json:"held,omitempty"`
	Ready     bool           `json:"ready,omitempty"` // everything that is held was told
	Started   *StartedFrame  `json:"started,omitempty"`
	Failed    *FailedFrame   `json:"failed,omitempty"`
	Updates   []Update       `json:"news,omitempty"`
	Displaced bool           `json:"bye,omitempty"` // another worker has taken over
}

// Welcome answers Hello.
type Welcome struct {
	Protocol int           `json:"protocol"`
	Build    string        `json:"build"`
	Pid      run.Pid       `json:"pid"` // the shim's own
	Contact  time.Duration `json:"contact,omitempty"`
}

// SnapshotFrame is one attempt that a new worker is told of.
type SnapshotFrame struct {
	run.Recovered
	Progress *muster.Progress `json:"progress,omitempty"` // all that the task said, merged
}

// StartedFrame is the process that an attempt has got.
type StartedFrame struct {
	Pid run.Pid     `json:"pid"`
	At  muster.Time `json:"at"`
}

// FailedFrame is a run.TaskError.
type FailedFrame struct {
	Reason       muster.Reason `json:"reason"`
	Message      string        `json:"message"`
	ShuttingDown bool          `json:"ending,omitempty"` // the shim takes nothing new: another one may
}

// Update is what became of one attempt since the last news of it.
type Update struct {
	Attempt  muster.AttemptID `json:"attempt"`
	Progress *muster.Progress `json:"progress,omitempty"`
	LogSize  int64            `json:"log_size,omitempty"`
	Exit     *run.Exit        `json:"exit,omitempty"`
}

// AppendFrame appends the encoding of a frame to dst: its length in 4 bytes, big
// endian, and JSON. One over MaxFrame is refused. Its errors are ErrEncode.
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
		return dst, fmt.Errorf("%w: a frame of %s is over the limit of %s", ErrEncode, muster.Size(len(b)), muster.Size(MaxFrame))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}

// FrameReader reads the frames of one direction. One goroutine at a time uses it.
type FrameReader struct {
	MaxSize int // bytes of one

	r   *bufio.Reader
	buf []byte
}

// NewFrameReader reads from r, ahead of what is asked for, frames of up to MaxFrame.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReaderSize(r, readBufferSize), MaxSize: MaxFrame}
}

// readBufferSize is enough for most frames, or several.
const readBufferSize = 8 << 10

// ErrDecode says that one frame is not understood; the next one may be.
var ErrDecode = errors.New("a frame cannot be read")

// Next decodes the next frame into f. After ErrDecode it may be called again.
func (r *FrameReader) Next(f any) error {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > r.MaxSize {
		return fmt.Errorf("a frame of %s is over the limit of %s", muster.Size(n), muster.Size(r.MaxSize))
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

// ErrEncode says that one frame cannot be encoded; the next one may be.
var ErrEncode = errors.New("a frame cannot be encoded")

// maxKeptBuffer is how large a buffer may be that is kept for the next frame.
const maxKeptBuffer = 64 << 10
