package agent

import (
	"fmt"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
)

// A nonce belongs to the first job that claims it, also after a restart, until it expires.
func TestNoncesBelongToTheFirstJob(t *testing.T) {
	dir := t.TempDir()
	open := func() *ReportStore {
		s, err := OpenReportStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	claim := func(nonce, uid, want string, now muster.Time) {
		t.Helper()
		if owner, err := s.ClaimNonce(nonce, uid, 100, now); err != nil || owner != want {
			t.Errorf("%s for %s: %q, %v", nonce, uid, owner, err)
		}
	}
	claim("a", "job1", "job1", 1)
	claim("a", "job2", "job1", 2)
	claim("b", "job2", "job2", 3)
	if _, err := s.ClaimNonce("other", "job1", 100, 3); muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("another nonce for a known job: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	claim("a", "job2", "job1", 4)
	claim("c", "job1", "job1", 100) // removes those that have expired
	if err := s.db.View(func(tx *bbolt.Tx) error {
		if n := tx.Bucket([]byte(noncesBucket)).Stats().KeyN; n != 1 {
			t.Errorf("%d nonces are stored", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestNoncesAreBounded(t *testing.T) {
	s, err := OpenReportStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(noncesBucket))
		for i := 0; i < MaxNonces && err == nil; i++ {
			err = boltdb.PutJSON(b, fmt.Sprint("n", i), claimedNonce{UID: "job1", Until: 100})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ClaimNonce("new", "job2", 200, 99); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("one more: %v", err)
	}
	if owner, err := s.ClaimNonce("n7", "job1", 100, 99); err != nil || owner != "job1" {
		t.Errorf("a known one: %q, %v", owner, err)
	}
	if owner, err := s.ClaimNonce("new", "job2", 200, 100); err != nil || owner != "job2" {
		t.Errorf("after the others expired: %q, %v", owner, err)
	}
}
