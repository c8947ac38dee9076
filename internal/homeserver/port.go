package homeserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that systems use for outgoing
// connections (Linux: from 32768), so that a server which is down for a moment
// finds its port free when it comes back.
const (
	firstPort = 20000
	lastPort  = 31999
	portTries = 200
)

// FreePort finds a TCP port of 127.0.0.1 on which nobody listens. It does not
// hold the port: somebody else may take it before the caller does.
func FreePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // a port, not a secret
		if portFree(context.Background(), port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %d tries failed", firstPort, lastPort, portTries)
}

// portFree returns nil if a server could listen on port now.
func portFree(ctx context.Context, port int) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
