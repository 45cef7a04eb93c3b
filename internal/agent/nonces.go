package agent

import (
	"encoding/json"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
)

// MaxNonces is how many nonces of signed jobs a worker remembers before they expire. It takes no further signed jobs beyond that.
const MaxNonces = 10_000

const noncesBucket = "nonces"

// claimedNonce is the job of a nonce.
type claimedNonce struct {
	UID   string      `json:"uid"`
	Until muster.Time `json:"until"`
}

// ClaimNonce implements signedjob.Jobs: it returns the UID of the job that first claimed the nonce. A new one is stored for uid, and remembered until
// then, as other processes on this data dir see, before it returns. It is a Forbidden error if uid has another nonce, so that the server cannot give two
// signed jobs the same UID. A nonce that expired is forgotten when others are claimed.
func (s *ReportStore) ClaimNonce(nonce, uid string, until, now muster.Time) (owner string, err error) {
	full, known := errors.New("full"), errors.New("known")
	read := func(b *bbolt.Bucket) (c claimedNonce, err error) {
		if v := b.Get([]byte(nonce)); v != nil {
			err = json.Unmarshal(v, &c)
		}
		return c, err
	}
	var c claimedNonce
	err = s.db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket([]byte(noncesBucket)); b != nil {
			c, err = read(b)
		}
		return err
	})
	if err == nil && c.UID == "" {
		err = s.db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(noncesBucket))
			if err != nil {
				return err
			}
			if c, err = read(b); err != nil || c.UID != "" { // another goroutine was faster
				return err
			}
			n, taken, err := removeExpired(b, uid, now)
			switch {
			case err != nil:
				return err
			case taken:
				return known
			case n >= MaxNonces:
				return full
			}
			c = claimedNonce{UID: uid, Until: until}
			return boltdb.PutJSON(b, nonce, c)
		})
	}
	switch {
	case errors.Is(err, full):
		return "", muster.Errorf(muster.Unavailable, "this worker remembers %d signed jobs whose signatures have not expired, and takes no more", MaxNonces)
	case errors.Is(err, known):
		return "", muster.Errorf(muster.Forbidden, "this worker has run a job with another signature under the id %s that the server gives this one", muster.Truncate(uid))
	case err != nil:
		return "", muster.Errorf(muster.Internal, "cannot remember a signed job: %w", err)
	}
	return c.UID, nil
}

// removeExpired removes the nonces that have expired, and returns how many are left, and whether one of them is of the job uid.
func removeExpired(b *bbolt.Bucket, uid string, now muster.Time) (n int, taken bool, err error) {
	var expired [][]byte
	err = b.ForEach(func(nonce, v []byte) error {
		var c claimedNonce
		if err := json.Unmarshal(v, &c); err != nil {
			return err
		}
		if n++; c.Until <= now {
			expired = append(expired, nonce)
		} else if c.UID == uid {
			taken = true
		}
		return nil
	})
	for _, nonce := range expired {
		err = errors.Join(err, b.Delete(nonce))
	}
	return n - len(expired), taken, err
}
