package obs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/origin"
)

// samples has the values of a scrape, by series in Prometheus's notation.
type samples map[string]float64

// scrape reads metrics. A token "" asks without a key.
func scrape(t *testing.T, url, token string) (samples, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := origin.Unverified(time.Minute).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, resp.Body)
		return nil, resp.StatusCode
	}
	got := samples{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[line[:at]] = v
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return got, resp.StatusCode
}

// check complains of series that are missing or have other values.
func (s samples) check(want map[string]float64) error {
	var errs []error
	for series, v := range want {
		if got, ok := s[series]; !ok || got != v {
			errs = append(errs, fmt.Errorf("%s is %v (there: %t), want %v", series, got, ok, v))
		}
	}
	return errors.Join(errs...)
}
