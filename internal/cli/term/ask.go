package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Prompt writes a question to w and returns the line that is typed at the
// process's terminal, without spaces around it and in lower case. It ends early
// with ctx's error if ctx ends.
func Prompt(ctx context.Context, w io.Writer, question string) (string, error) {
	tty, err := os.OpenFile(terminalDevice, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("no terminal to ask at: %w", err)
	}
	defer tty.Close()
	// A read from a terminal does not end with a context, but it does with a
	// deadline in the past.
	defer context.AfterFunc(ctx, func() { _ = tty.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := io.WriteString(w, question); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(tty).ReadString('\n')
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(answer)), nil
}
