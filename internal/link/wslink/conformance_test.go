package wslink_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/link/wslink"
)

func transport() linktest.Transport {
	return linktest.Transport{
		NewServer: func(identify link.Identify, accept link.Accept) (http.Handler, func(context.Context) error) {
			s := wslink.NewServer(identify, accept)
			return s, s.Run
		},
		Path: link.PathSocket,
		NewExecServer: func(identify link.Identify, accept link.AcceptFrames) (http.Handler, func(context.Context) error) {
			s := wslink.NewFrameServer(identify, accept)
			return s, s.Run
		},
		ExecPath: link.PathExec,
		NewDialer: func(server string, c link.Credentials) link.Dialer {
			return &wslink.Dialer{Server: server, Credentials: c, HTTP: &http.Client{Transport: &http.Transport{}}}
		},
	}
}

func TestContract(t *testing.T) { linktest.Run(t, transport()) }

func BenchmarkLink(b *testing.B) { linktest.Bench(b, transport()) }
