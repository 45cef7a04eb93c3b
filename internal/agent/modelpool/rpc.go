package modelpool

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// maxSocketPath is the longest path of a socket that all systems support, in bytes.
const maxSocketPath = 100

// callTimeout limits a request that a server answers at once.
const callTimeout = 5 * time.Second

// healthy reports whether the server answers.
func (s *server) healthy() bool { return s.call(`{"op":"ping"}`) == nil }

// call sends a request and returns nil if the response is ok.
func (s *server) call(line string) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return err
	}
	b, err := bufio.NewReaderSize(conn, 64<<10).ReadSlice('\n')
	if err != nil {
		return err
	}
	var answer struct {
		OK bool `json:"ok"`
	}
	if err := json.Unmarshal(b, &answer); err != nil || !answer.OK {
		return errors.Join(errors.New("invalid response"), err)
	}
	return nil
}

// dial connects to the server. On Linux, a socket path that is too long is replaced by one through an open folder.
func (s *server) dial() (net.Conn, error) {
	path := s.socket()
	if len(path) > maxSocketPath && runtime.GOOS == "linux" {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return net.DialTimeout("unix", path, callTimeout) //nolint:noctx // callTimeout limits it
}
