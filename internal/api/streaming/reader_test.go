package streaming

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowBody brings some bytes a second, until total have come.
type slowBody struct{ rate, left int }

func (s *slowBody) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	n := min(s.rate, s.left, len(p))
	s.left -= n
	return n, nil
}

// conn accepts deadlines, as a connection.
type conn struct{ *httptest.ResponseRecorder }

func (conn) SetReadDeadline(time.Time) error { return nil }

var _ http.ResponseWriter = conn{}

// An upload that trickles ends after a minute; one that is slow does not.
func TestUploadsThatTrickleEnd(t *testing.T) {
	for _, c := range []struct {
		rate, total int
		want        string
		within      time.Duration
	}{
		{1, 1 << 20, "less than 1KiB a second", 62 * time.Second},
		{1000, 1 << 20, "less than 1KiB a second", 62 * time.Second},
		{2048, 10 << 20, "", 2 * time.Hour},
		{1, 50, "", time.Minute}, // a small one may be slow
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := NewReader(&slowBody{c.rate, c.total}, conn{httptest.NewRecorder()}, httptest.NewRequest(http.MethodPut, "/", http.NoBody))
			n, err := io.Copy(io.Discard, r)
			if took := time.Since(began); took > c.within {
				t.Errorf("%d bytes a second: it took %s", c.rate, took)
			}
			if c.want == "" && (err != nil || n != int64(c.total)) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%d bytes a second: %d bytes, %v, want %q", c.rate, n, err, c.want)
			}
		})
	}
}
