package link

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

func (s *scanner) toServer(f *ToServer) error {
	return s.object(func(key string) error {
		switch key {
		case "seq":
			n, err := s.count(math.MaxInt64)
			f.Seq = uint64(n)
			return err
		case "hello":
			return s.value(&f.Hello)
		case "ready":
			return s.value(&f.Ready)
		case "offer":
			return s.value(&f.Offer)
		case "accepted":
			return list(s, &f.Accepted, s.attempt)
		case "rejected":
			return s.value(&f.Rejected)
		case "started":
			return list(s, &f.Started, s.started)
		case "progress":
			return s.value(&f.Progress)
		case "logs":
			return list(s, &f.Logs, s.logChunk)
		case "saved":
			return s.value(&f.Saved)
		case "finished":
			return list(s, &f.Finished, s.report)
		case "renew":
			return s.value(&f.Renew)
		case "ping":
			return s.boolean(&f.Ping)
		case "goodbye":
			return s.value(&f.Goodbye)
		}
		return errUnknownField()
	})
}

func (s *scanner) toWorker(f *ToWorker) error {
	return s.object(func(key string) error {
		switch key {
		case "seq":
			n, err := s.count(math.MaxInt64)
			f.Seq = uint64(n)
			return err
		case "welcome":
			return s.value(&f.Welcome)
		case "specs":
			return s.value(&f.Specs)
		case "assign":
			return list(s, &f.Assign, s.assign)
		case "cancel":
			return s.value(&f.Cancel)
		case "finished_ack":
			return list(s, &f.FinishedAck, s.attempt)
		case "log_ack":
			return list(s, &f.LogAck, s.logAck)
		case "drain":
			return s.boolean(&f.Drain)
		case "heal":
			return s.value(&f.Heal)
		case "pong":
			return s.boolean(&f.Pong)
		case "goodbye":
			return s.value(&f.Goodbye)
		}
		return errUnknownField()
	})
}

func errUnknownField() error { return fieldErrorf("is not a field of this protocol") }

// list reads an array of messages.
func list[T any](s *scanner, to *[]T, elem func(*T) error) error {
	return s.array(func() error {
		if len(*to) == cap(*to) {
			*to = slices.Grow(*to, max(8, len(*to)))
		}
		*to = (*to)[:len(*to)+1]
		return elem(&(*to)[len(*to)-1])
	})
}

func (s *scanner) started(m *Started) error {
	return s.object(func(key string) error {
		switch key {
		case "attempt":
			return s.attempt(&m.Attempt)
		case "at":
			return s.time(&m.At)
		}
		return errUnknownField()
	})
}

func (s *scanner) logAck(m *LogAck) error {
	return s.object(func(key string) error {
		switch key {
		case "attempt":
			return s.attempt(&m.Attempt)
		case "size":
			return s.size(&m.Size)
		case "pause":
			return s.value(&m.Pause)
		}
		return errUnknownField()
	})
}

func (s *scanner) logChunk(m *LogChunk) error {
	return s.object(func(key string) error {
		switch key {
		case "attempt":
			return s.attempt(&m.Attempt)
		case "offset":
			return s.size(&m.Offset)
		case "data":
			plain, _, err := s.quoted()
			if err != nil {
				return err
			}
			m.Data, err = base64.StdEncoding.Strict().AppendDecode(nil, plain)
			if err != nil {
				return fieldErrorf("is not base64")
			}
			return nil
		}
		return errUnknownField()
	})
}

func (s *scanner) report(m *muster.Report) error {
	return s.object(func(key string) error {
		switch key {
		case "attempt":
			return s.attempt(&m.Attempt)
		case "outcome":
			return known(s, &m.Outcome, outcomes)
		case "reason":
			return known(s, &m.Reason, muster.Reasons)
		case "message":
			return s.text(&m.Message)
		case "exit_code":
			return s.exitCode(&m.ExitCode)
		case "result":
			raw, err := s.raw()
			if err == nil && !json.Valid(raw) {
				err = fieldErrorf("is not JSON")
			}
			m.Result = bytes.Clone(raw)
			return err
		case "artifacts":
			return s.value(&m.Artifacts)
		case "usage":
			return s.value(&m.Usage)
		case "image":
			return s.text(&m.Image)
		case "log_size":
			return s.size(&m.LogSize)
		case "started_at":
			return s.time(&m.StartedAt)
		case "finished_at":
			return s.time(&m.FinishedAt)
		}
		return errUnknownField()
	})
}

func (s *scanner) assign(m *Assign) error {
	return s.object(func(key string) error {
		switch key {
		case "attempt":
			return s.attempt(&m.Attempt)
		case "ref":
			n, err := s.count(math.MaxInt32)
			m.Ref = int(n)
			return err
		case "element":
			return s.text(&m.Element)
		case "spec":
			return s.value(&m.Spec)
		case "grant":
			return s.grant(&m.Grant)
		case "inputs":
			return s.value(&m.Inputs)
		case "checkpoint":
			return s.text(&m.Checkpoint)
		case "gang":
			return s.value(&m.Gang)
		}
		return errUnknownField()
	})
}

// grant reads the most common grant, slots only, without encoding/json.
func (s *scanner) grant(m *muster.Grant) error {
	start := s.i
	err := s.object(func(key string) error {
		if key != "slots" {
			return errUnknownField()
		}
		n, err := s.count(math.MaxInt32)
		m.Slots = int(n)
		return err
	})
	if err == nil {
		return nil
	}
	s.i = start
	*m = muster.Grant{}
	return s.value(m)
}

func (s *scanner) size(to *int64) error {
	n, err := s.count(math.MaxInt64)
	*to = n
	return err
}

// exitCode reads a whole number, or null.
func (s *scanner) exitCode(to **int) error {
	if s.accept('n') {
		s.i--
		return s.value(to)
	}
	b, err := s.number()
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != string(b) {
		return fieldErrorf("is %s: it must be a whole number", b)
	}
	code := int(n)
	*to = &code
	return nil
}

// known reads a string, without allocating it if list has it. checkToServer refuses other values.
func known[T ~string](s *scanner, to *T, list []T) error {
	plain, unescaped, err := s.quoted()
	if err != nil {
		return err
	}
	if unescaped != nil {
		plain = []byte(*unescaped)
	}
	if i := slices.IndexFunc(list, func(v T) bool { return string(v) == string(plain) }); i >= 0 {
		*to = list[i]
	} else {
		*to = T(plain)
	}
	return nil
}

// otherVersion returns the Hello of a first frame if it has
// another protocol version, and nil otherwise.
func otherVersion(b []byte) *Hello {
	var f struct {
		Hello *struct {
			Version int             `json:"version"`
			Worker  muster.WorkerID `json:"worker"`
			Name    string          `json:"name"`
			Build   string          `json:"build"`
		} `json:"hello"`
	}
	if len(b) > MaxFrame || json.Unmarshal(b, &f) != nil || f.Hello == nil || f.Hello.Version == Version {
		return nil
	}
	return &Hello{Version: f.Hello.Version, Worker: f.Hello.Worker, Name: f.Hello.Name, Build: f.Hello.Build}
}
