package history

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/muster-dev/muster"
)

// The file has the magic, the newest slots, the rings of the fleet, the number of workers, each worker's id and rings, and the
// CRC-32 of all this. Numbers are little-endian.
const (
	magic     = "muster history 1\n"
	maxIDSize = 1 << 10
)

// saveSchedule limits how often the file is written: at most once a minute, and at most maxWriteRate on average.
type saveSchedule struct {
	lastSave time.Time
	failed   bool // the last save failed
}

const (
	minSaveInterval = time.Minute
	maxWriteRate    = 100_000 // bytes a second
)

func (s *saveSchedule) due(now time.Time, size int) bool {
	if s.lastSave.IsZero() {
		s.lastSave = now
	}
	return now.Sub(s.lastSave) >= max(minSaveInterval, time.Duration(size/maxWriteRate)*time.Second)
}

// size returns the approximate size of the file in bytes.
func (h *History) size() int {
	return 4*len(h.fleet.data) + len(h.workers)*(2*workerData+32)
}

// save writes the file. It logs only the first of several errors.
func (h *History) save(now time.Time) {
	h.schedule.lastSave = now
	err := writeFileAtomic(h.cfg.File, h.write)
	if err != nil && !h.schedule.failed {
		h.cfg.Log.Warn("cannot save the load history of the fleet", slog.String("file", h.cfg.File), slog.Any("error", err))
	}
	h.schedule.failed = err != nil
}

// writeFileAtomic replaces a file atomically. Unlike package atomicfile it always uses the same temporary name, so that the rest of
// a write that was killed, which may be large, is overwritten.
func writeFileAtomic(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone if all went well
	w := bufio.NewWriterSize(f, 1<<16)
	err = write(w)
	if err = errors.Join(err, w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func (h *History) write(to io.Writer) error {
	sum := crc32.NewIEEE()
	w := io.MultiWriter(to, sum)
	b := appendNumbers([]byte(magic), h.newest[:])
	b = appendNumbers(b, h.fleet.data)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.workers)))
	for id, r := range h.workers {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(id)))
		b = appendNumbers(append(b, id...), r.data)
		if _, err := w.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := to.Write(binary.LittleEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

func appendNumbers(b []byte, list any) []byte {
	b, _ = binary.Append(b, binary.LittleEndian, list) // only other types than slices of numbers fail
	return b
}

// load reads the file if it exists. It ignores a damaged file, or one of another version.
func (h *History) load() {
	f, err := os.Open(h.cfg.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = h.read(f)
		_ = f.Close() // it was only read
	}
	if err != nil {
		h.reset()
		h.cfg.Log.Warn("the load history of the fleet is damaged, starting a new one", slog.String("file", h.cfg.File), slog.Any("error", err))
	}
}

var errDamaged = errors.New("the file is damaged or has another version")

func (h *History) read(f io.Reader) error {
	sum := crc32.NewIEEE()
	buffered := bufio.NewReaderSize(f, 1<<16)
	r := io.TeeReader(buffered, sum)
	head := make([]byte, len(magic)+8*tiers+4*len(h.fleet.data)+4)
	if _, err := io.ReadFull(r, head); err != nil || !bytes.HasPrefix(head, []byte(magic)) {
		return errors.Join(errDamaged, err)
	}
	body := bytes.NewReader(head[len(magic):])
	var n uint32
	for _, numbers := range []any{h.newest[:], h.fleet.data, &n} {
		if err := binary.Read(body, binary.LittleEndian, numbers); err != nil {
			return err
		}
	}
	for i, slot := range h.newest {
		if slot < 0 || slot > math.MaxInt64/1000/resolutions[i].step {
			return errDamaged
		}
	}
	if n > maxWorkers {
		return errDamaged
	}
	for range n {
		if err := h.readWorker(r); err != nil {
			return err
		}
	}
	var want [4]byte
	if _, err := io.ReadFull(buffered, want[:]); err != nil || binary.LittleEndian.Uint32(want[:]) != sum.Sum32() {
		return errors.Join(errDamaged, err)
	}
	if _, err := buffered.ReadByte(); err != io.EOF {
		return errors.Join(errDamaged, err)
	}
	return nil
}

func (h *History) readWorker(r io.Reader) error {
	var size uint16
	if err := binary.Read(r, binary.LittleEndian, &size); err != nil {
		return fmt.Errorf("a worker: %w", err)
	}
	if size > maxIDSize {
		return errDamaged
	}
	id := make([]byte, size)
	if _, err := io.ReadFull(r, id); err != nil {
		return fmt.Errorf("a worker: %w", err)
	}
	if h.workers[muster.WorkerID(id)] != nil {
		return errDamaged
	}
	if err := binary.Read(r, binary.LittleEndian, h.addWorker(muster.WorkerID(id)).data); err != nil {
		return fmt.Errorf("a worker: %w", err)
	}
	return nil
}
