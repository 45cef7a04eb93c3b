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

// maxSocketPath is how long the path of a socket can be on every system.
const maxSocketPath = 100

// callTimeout is how long a host may take to answer what it answers at once.
const callTimeout = 5 * time.Second

// healthy reports whether the host does.
func (s *server) healthy() bool { return s.call(`{"op":"ping"}`) == nil }

// call says something to the host. It returns nil if that is answered with ok.
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
		return errors.Join(errors.New("the answer is not that of a host"), err)
	}
	return nil
}

// dial connects with the host. The paths of sockets are short, those of data dirs need not be: there the folder is named by an
// open file.
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
	return net.DialTimeout("unix", path, callTimeout) //nolint:noctx // bounded by its own time
}
