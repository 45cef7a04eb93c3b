package sealing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// KeySize is the size of a key in bytes.
const KeySize = 32

const (
	commandTimeout = 30 * time.Second
	killDelay      = time.Second // for processes that hold the output of a killed command open
	maxKeysSize    = 64 << 10    // bytes of a file, or of the output of a command
	maxStderr      = 4 << 10
	maxStderrLine  = 200
)

// Source is where keys are read from: the output of Command if it is not "", else File. Both have a key in each line, as 64 hexadecimal
// digits. The first one is the current one, the others read what was sealed with them.
type Source struct {
	File    string // created with a new key if it does not exist; only its owner can read it
	Command string // of a shell, such as one that decrypts the keys with a key management service

	Name   string // of the key in errors, such as "webhook key"
	IfLost string // what to do without the key
}

// LoadKeys returns the keys of a source, at least one. It takes at most 30 seconds, and its errors contain no part of a key.
func LoadKeys(ctx context.Context, s Source) ([][]byte, error) {
	if s.Command != "" {
		text, err := s.run(ctx)
		if err != nil {
			return nil, muster.Errorf(muster.Unavailable, "the command that prints the %s %w", s.Name, err)
		}
		keys, badLine := parseKeys(text)
		if len(keys) == 0 {
			return nil, muster.Errorf(muster.Invalid, "line %d of the output of the command that prints the %s is not a key: it must be 64 hexadecimal digits", badLine, s.Name)
		}
		return keys, nil
	}
	text, err := os.ReadFile(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, KeySize)
		_, _ = rand.Read(key) // never fails
		if err := atomicfile.Write(s.File, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the %s: %w", s.Name, err)
		}
		return [][]byte{key}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", s.Name, err)
	}
	keys, badLine := parseKeys(text)
	if len(keys) == 0 {
		return nil, muster.Errorf(muster.Invalid, "line %d of the file %s is not a %s, 64 hexadecimal digits: restore it from a backup, or %s", badLine, s.File, s.Name, s.IfLost)
	}
	return keys, nil
}

// parseKeys returns the keys of a text, or none and the number of the first line that is not a key.
func parseKeys(text []byte) (keys [][]byte, badLine int) {
	text = bytes.TrimSpace(text)
	if len(text) > maxKeysSize {
		return nil, 1
	}
	for line := range bytes.Lines(text) {
		key, err := hex.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil || len(key) != KeySize {
			return nil, len(keys) + 1
		}
		keys = append(keys, key)
	}
	return keys, 1
}

// run returns the output of Command. It kills the command, with all that it started, when it takes too long.
func (s *Source) run(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	shell := []string{"/bin/sh", "-c"}
	if runtime.GOOS == "windows" {
		shell = []string{"cmd", "/C"}
	}
	cmd := exec.CommandContext(ctx, shell[0], append(shell[1:], s.Command)...)
	out, stderr := limitedBuffer{limit: maxKeysSize + 1}, limitedBuffer{limit: maxStderr}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &stderr, killDelay
	setProcessGroup(cmd)
	err := cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("did not end within %s", muster.Duration(commandTimeout))
	case ctx.Err() != nil:
		return nil, fmt.Errorf("was interrupted: %w", ctx.Err())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("failed (%w): %s", err, firstLine(stderr.data))
	}
	return out.data, nil
}

// firstLine returns the first line of what a command printed to its standard error, as plain text.
func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	line = bytes.TrimSpace(line[:min(len(line), maxStderrLine)])
	if len(line) == 0 {
		return "it printed no error"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(line), ""))
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	data  []byte
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), b.limit-len(b.data))]...)
	return len(p), nil
}
