package shim

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
	"github.com/muster-dev/muster/internal/tasklog"
)

// protocol is the version of what follows. Hello and welcome stay readable for
// every version; the rest of another one is not spoken.
const protocol = 1

// maxFrame is the most bytes of one frame: a report and a spec are a good deal smaller.
const maxFrame = 32 << 20

// toShim is one frame from the worker to the shim.
type toShim struct {
	Seq     uint64             `json:"seq,omitempty"` // of what is answered; the answer repeats it
	Hello   *hello             `json:"hello,omitempty"`
	Ping    bool               `json:"ping,omitempty"`
	Start   *run.Start         `json:"start,omitempty"`
	Stop    *stopFrame         `json:"stop,omitempty"`
	Record  *recordFrame       `json:"record,omitempty"`
	Settle  *muster.Report     `json:"settle,omitempty"`
	Freeze  *freezeFrame       `json:"freeze,omitempty"`
	Contact time.Duration      `json:"contact,omitempty"`
	Forget  []muster.AttemptID `json:"forget,omitempty"`
}

// hello is the first frame of a connection.
type hello struct {
	Protocol int           `json:"protocol"`
	Key      string        `json:"key,omitempty"` // which only the worker can read
	Contact  time.Duration `json:"contact,omitempty"`
}

type stopFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Why     run.Stopped      `json:"why"`
	How     muster.Kill      `json:"how"`
}

type recordFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	Stream  tasklog.Stream   `json:"stream"`
	Data    []byte           `json:"data"`
}

type freezeFrame struct {
	Attempt muster.AttemptID `json:"attempt"`
	On      bool             `json:"on"`
}

// toWorker is one frame from the shim to the worker.
type toWorker struct {
	Seq     uint64        `json:"seq,omitempty"` // of the frame that is answered
	Welcome *welcome      `json:"welcome,omitempty"`
	Held    *heldFrame    `json:"held,omitempty"`
	Ready   bool          `json:"ready,omitempty"` // everything that is held was told
	Started *startedFrame `json:"started,omitempty"`
	Failed  *failedFrame  `json:"failed,omitempty"`
	News    []news        `json:"news,omitempty"`
	Bye     bool          `json:"bye,omitempty"` // another worker has taken over
}

// welcome answers hello.
type welcome struct {
	Protocol int           `json:"protocol"`
	Build    string        `json:"build"`
	Pid      run.Pid       `json:"pid"` // the shim's own
	Contact  time.Duration `json:"contact,omitempty"`
}

// heldFrame is one attempt that a new worker is told of.
type heldFrame struct {
	run.Held
	Progress *muster.Progress `json:"progress,omitempty"` // all that the task said, merged
}

type startedFrame struct {
	Pid run.Pid     `json:"pid"`
	At  muster.Time `json:"at"`
}

// failedFrame is a run.TaskError.
type failedFrame struct {
	Reason  muster.Reason `json:"reason"`
	Message string        `json:"message"`
	Ending  bool          `json:"ending,omitempty"` // the shim takes nothing new: another one may
}

func failure(err error) *failedFrame {
	if f, ok := errors.AsType[*run.TaskError](err); ok {
		return &failedFrame{Reason: f.Reason, Message: f.Message}
	}
	return &failedFrame{Reason: muster.WorkerInternal, Message: err.Error(), Ending: errors.Is(err, errEnding)}
}

func (f *failedFrame) err() error {
	if f.Ending {
		return errBefore
	}
	return &run.TaskError{Reason: f.Reason, Message: f.Message}
}

// news is what became of one attempt since the last news of it.
type news struct {
	Attempt  muster.AttemptID `json:"attempt"`
	Progress *muster.Progress `json:"progress,omitempty"`
	LogSize  int64            `json:"log_size,omitempty"`
	Exit     *run.Exit        `json:"exit,omitempty"`
}

// appendFrame appends the encoding of a frame to dst: its length in 4 bytes, big
// endian, and JSON.
func appendFrame(dst []byte, f any) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return dst, err
	}
	if len(b) > maxFrame {
		return dst, fmt.Errorf("a frame of %s is over the limit of %s", muster.Size(len(b)), muster.Size(maxFrame))
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}

// maxHello is that of a frame of somebody who has not said who he is.
const maxHello = 4 << 10

// frames reads the frames of one direction.
type frames struct {
	r    *bufio.Reader
	buf  []byte
	most int // bytes of one
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, readAhead), most: maxFrame}
}

// readAhead is enough for most frames, or several.
const readAhead = 8 << 10

// errUnreadable says that one frame is not understood; the next one may be.
var errUnreadable = errors.New("a frame cannot be read")

// next decodes the next frame into f. After errUnreadable it may be called again.
func (r *frames) next(f any) error {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > r.most {
		return fmt.Errorf("a frame of %s is over the limit of %s", muster.Size(n), muster.Size(r.most))
	}
	if cap(r.buf) < n || cap(r.buf) > keptBuffer {
		r.buf = make([]byte, max(n, 4<<10))
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, f); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// keptBuffer is how large a buffer may be that is kept for the next frame.
const keptBuffer = 64 << 10
