package web_test

import (
	"io/fs"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/dashboard"
	"github.com/muster-dev/muster/web"
)

// The embedded files can be served, whether the dashboard was built or not, and load nothing from other servers.
func TestDist(t *testing.T) {
	files := web.Dist()
	if _, err := fs.Stat(files, ".gitignore"); err != nil {
		t.Errorf("dist is not embedded: %v", err)
	}
	h, err := dashboard.New(files)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	page := w.Body.String()
	if w.Code != 200 || !strings.Contains(page, "<html") {
		t.Errorf("the page: %d %q", w.Code, page)
	}
	if strings.Contains(page, "src=\"http") || strings.Contains(page, "href=\"http") && h.Built() {
		t.Errorf("the page loads something from another server: %s", page)
	}
}
