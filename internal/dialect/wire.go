package dialect

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// NewUUID returns a random UUID of version 4.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// RemoteAddr returns the address from which a request comes, invalid if it is not known.
func RemoteAddr(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr().Unmap().WithZone("")
}

const (
	secretSize    = 32
	minSecretSize = 16
)

// Secret returns the secret bytes in the file at path. It creates the file if it is missing or shorter than 16 bytes.
func Secret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) >= minSecretSize {
		return b, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, muster.Errorf(muster.Internal, "cannot read the gateway's secret: %w", err)
	}
	b = make([]byte, secretSize)
	_, _ = rand.Read(b) // never fails
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot write the gateway's secret: %w", err)
	}
	return b, nil
}
