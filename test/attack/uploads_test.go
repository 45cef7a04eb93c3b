//go:build linux

package attack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/testkit"
)

// partOfUpload begins an upload of size bytes, sends the first part of it, and leaves the connection open.
func (e *env) partOfUpload(token, sum string, offset, size int, part []byte) net.Conn {
	e.t.Helper()
	conn, err := new(net.Dialer).DialContext(e.t.Context(), "tcp", e.Addr)
	testkit.NoError(e.t, err)
	e.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "PUT /api/v1/blobs/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nUpload-Offset: %d\r\nContent-Length: %d\r\n\r\n", sum, e.Addr, token, offset, size)
	testkit.NoError(e.t, err)
	_, err = conn.Write(part)
	testkit.NoError(e.t, err)
	return conn
}

// awaitUploaded waits until the server has n bytes of an unfinished upload.
func (e *env) awaitUploaded(token, sum string, n int) {
	e.t.Helper()
	e.Await(fmt.Sprintf("the server has %d bytes", n), awaitTimeout, func() error {
		rec := e.do(e.request(http.MethodHead, "/api/v1/blobs/"+sum, token, nil))
		if got := rec.Header().Get("Upload-Offset"); got != strconv.Itoa(n) {
			return fmt.Errorf("it has %q, %d", got, rec.Code)
		}
		return nil
	})
}

// TestAnOpenUploadHoldsUpNoOtherProject begins an upload of a blob of another project, whose hash it knows, and leaves it open: the true
// upload is accepted meanwhile.
func TestAnOpenUploadHoldsUpNoOtherProject(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	alpha, beta := e.key(string(auth.Submitter), "alpha", 0).Secret, e.key(string(auth.Submitter), "beta", 0).Secret
	const text = "a file of alpha, whose hash beta knows"
	e.partOfUpload(beta, sha256Hex(text), 0, len(text), []byte("other "))
	e.awaitUploaded(beta, sha256Hex(text), len("other "))
	e.http.Timeout = promptLimit
	if sum := e.upload(alpha, text); sum != sha256Hex(text) {
		t.Errorf("it is %s", sum)
	}
	if code, body := e.requestBlob(http.MethodGet, alpha, sha256Hex(text), ""); code != http.StatusOK || body != text {
		t.Errorf("alpha reads %d %q", code, body)
	}
}

// bytesRead returns how many bytes the server has read from files and connections.
func (e *env) bytesRead() (n int) {
	e.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", e.Server.PID()))
	testkit.NoError(e.t, err)
	_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
	testkit.NoError(e.t, err)
	return n
}

// TestContinuedUploadsCostWhatTheyBring continues an upload of 32 MiB ten times with one byte each: the server does not read what is there.
func TestContinuedUploadsCostWhatTheyBring(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.key(string(auth.Submitter), "alpha", 0).Secret
	const have, size = 32 << 20, 33 << 20
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	hash := sha256.Sum256(data)
	sum := hex.EncodeToString(hash[:])
	_ = e.partOfUpload(token, sum, 0, size, data[:have]).Close()
	e.awaitUploaded(token, sum, have)
	before := e.bytesRead()
	for n := have; n < have+10; n++ {
		_ = e.partOfUpload(token, sum, n, size-n, data[n:n+1]).Close()
		e.awaitUploaded(token, sum, n+1)
	}
	if read := e.bytesRead() - before; read > have {
		t.Errorf("the server read %d bytes for ten", read)
	}
}

// TestUnreadBodiesAreCutOff sends requests that are refused, without a key and with one that may not make them, and then trickles
// their bodies: they do not hold their connections, whatever they send.
func TestUnreadBodiesAreCutOff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	viewer := e.key(string(auth.Viewer), "", 0).Secret
	for path, token := range map[string]string{"/link/v1/join": "", "/healthz": "", "/link/v1/poll": viewer} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", e.Addr)
			testkit.NoError(t, err)
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 100000\r\n\r\n", path, e.Addr, token)
			testkit.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, conn)
				ended <- err
			}()
			tick, limit := time.NewTicker(200*time.Millisecond), time.After(awaitTimeout/2)
			defer tick.Stop()
			for {
				select {
				case <-ended:
					return
				case <-limit:
					t.Fatalf("the connection is open after %v", awaitTimeout/2)
				case <-tick.C:
					_, _ = conn.Write([]byte(" "))
				}
			}
		})
	}
}

// TestBadFoldersAreTheirUsersFault submits folders that no worker can write: the task fails at once, as the user's fault, and is not tried
// again on this or another worker.
func TestBadFoldersAreTheirUsersFault(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.StartWorker("rig", t.TempDir())
	file := e.upload(e.AdminToken, "x")
	entry := func(path string) string { return fmt.Sprintf(`{"path":%q,"size":1,"sha256":%q}`, path, file) }
	for name, files := range map[string]string{
		"a path that leads out":   entry("../evil"),
		"an absolute path":        entry("/etc/evil"),
		"a file twice":            entry("a") + "," + entry("a"),
		"a file that is a folder": entry("a") + "," + entry("a/b"),
		"a link that leads out":   `{"path":"l","link":"../../x"}`,
		"links that lead out":     `{"path":"d/l","link":".."},{"path":"m","link":"d/l/../x"}`,
		"an unknown field":        `{"path":"a","size":1,"sha256":"` + file + `","mode":2541}`,
		"a name that is too long": entry(strings.Repeat("x", 256)),
	} {
		job, err := e.submitAs(e.AdminToken, folderSpec(e.upload(e.AdminToken, `{"files":[`+files+`]}`)))
		testkit.NoError(t, err)
		e.Wait(job.ID, awaitTimeout)
		if task := e.Tasks(job.ID)[0]; task.State != muster.Failed || task.Reason != muster.TaskInvalid || task.Attempt != 1 {
			t.Fatalf("%s: the task is %s (%s) after %d attempts: %s", name, task.State, task.Reason, task.Attempt, task.Message)
		}
	}
}
