package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Hash is the hash of a record. In JSON it is text in hexadecimal.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(b []byte) error {
	sum, err := hex.DecodeString(string(b))
	if err != nil || len(sum) != len(h) {
		return muster.Errorf(muster.Invalid, "%.80q is not a hash: use %d hexadecimal digits", b, 2*len(h))
	}
	copy(h[:], sum)
	return nil
}

// Head is a record's number and hash, which depends on all records up to it. The zero Head is that of an empty log.
type Head struct {
	Seq  int64
	Hash Hash
}

// String returns HASH@SEQ, which ParseHead reads.
func (h Head) String() string { return h.Hash.String() + "@" + strconv.FormatInt(h.Seq, 10) }

// ParseHead reads HASH@SEQ.
func ParseHead(s string) (h Head, err error) {
	hash, seq, ok := strings.Cut(s, "@")
	if ok {
		h.Seq, err = strconv.ParseInt(seq, 10, 64)
	}
	if !ok || err != nil || h.Seq < 0 || h.Hash.UnmarshalText([]byte(hash)) != nil {
		return Head{}, muster.Errorf(muster.Invalid, "%.100q is not a head of the audit log: use HASH@SEQ, as muster audit verify prints it", s)
	}
	return h, nil
}

// MarshalText implements encoding.TextMarshaler.
func (h Head) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Head) UnmarshalText(b []byte) (err error) {
	*h, err = ParseHead(string(b))
	return err
}

const encodingVersion = "muster-audit-1"

// encode appends the canonical encoding of a record.
func encode(b []byte, r *Record) []byte {
	b = append(b, encodingVersion...)
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, field := range [...]string{
		number(r.Seq), number(int64(r.At)), r.Key, r.KeyName, r.Role, r.Worker, r.Address, r.Via, r.Operation, r.Object, r.Project,
		string(r.Outcome), number(int64(r.Status)), r.Detail, r.Request, number(r.Count), number(int64(r.Until)),
	} {
		b = strconv.AppendInt(b, int64(len(field)), 10)
		b = append(b, ':')
		b = append(b, field...)
		b = append(b, ',')
	}
	return b
}

// hashOf returns the hash of a record after another one.
func hashOf(prev Hash, r *Record) Hash {
	buf := make([]byte, 0, 512)
	return sha256.Sum256(encode(append(buf, prev[:]...), r))
}

// Append makes r the next record after head: it sets its number and hash, and its time if that is before last, the time of the previous
// record. It returns the new head.
func Append(head Head, last muster.Time, r *Record) Head {
	r.Clean()
	r.Seq, r.At = head.Seq+1, max(r.At, last)
	r.Hash = hashOf(head.Hash, r)
	return Head{r.Seq, r.Hash}
}

// Removal returns the record that allows the removal of all records up to a head.
func Removal(upTo Head, records int64, now muster.Time) Record {
	return Record{
		At: now, Role: Server, Operation: OpRemoveRecords, Outcome: Allowed, Object: "audit/" + strconv.FormatInt(upTo.Seq, 10),
		Detail: fmt.Sprintf("%d records up to %s", records, upTo),
	}
}

// removedBy returns the head up to which a record allows the removal of records.
func removedBy(r *Record) (upTo Head, ok bool) {
	if r.Operation != OpRemoveRecords {
		return Head{}, false
	}
	_, text, _ := strings.Cut(r.Detail, " records up to ")
	upTo, err := ParseHead(text)
	return upTo, err == nil
}
