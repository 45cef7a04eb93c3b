package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"time"

	"github.com/muster-dev/muster"
)

// load reads the files for the first time.
func (c *Certs) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.madeAt, c.stamp = time.Now(), c.stat()
	return c.loadLocked()
}

func (c *Certs) loadLocked() error {
	pair, err := tls.LoadX509KeyPair(c.cfg.CertFile, c.cfg.KeyFile)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot load the certificate %s with the key %s: %w; both must be in PEM and belong together", c.cfg.CertFile, c.cfg.KeyFile, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return err
		}
	}
	c.current, c.leaf = &pair, pair.Leaf
	return nil
}

// reload loads the files if they have changed. If they cannot be loaded, for example because only one of them has been replaced yet, the
// current certificate is still used, and it tries again. The caller holds mu.
func (c *Certs) reload() {
	now := c.stat()
	if now == c.stamp {
		return
	}
	if err := c.loadLocked(); err != nil {
		if now != c.failed {
			c.log.Error("cannot load the changed certificate; the previous one is still used", slog.Any("error", err))
		}
		c.failed = now
		return
	}
	c.stamp = now
	c.log.Info("certificate loaded", slog.String("file", c.cfg.CertFile), slog.Time("not_after", c.leaf.NotAfter))
}

// stat returns the state of the files.
func (c *Certs) stat() fileStamp {
	return fileStamp{cert: statFile(c.cfg.CertFile), key: statFile(c.cfg.KeyFile)}
}

// statFile returns the state of a file, zero if it cannot be read.
func statFile(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{size: info.Size(), time: info.ModTime()}
}
