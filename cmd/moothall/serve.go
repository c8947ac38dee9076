package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge"
	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/cmd/moothall/config"
	"moothall/commands"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/plugins/clock"
	"moothall/runtime/plugins/room"
	"moothall/runtime/policy"
	"moothall/store"
)

// How a stop goes: new events are refused first, then what is at hand ends.
const (
	drainFor  = 10 * time.Second
	hangUpFor = 2 * time.Second
	callLimit = 30 * time.Second // one request to the homeserver
)

// serveCmd runs the application service.
type serveCmd struct{}

// Run implements the subcommand.
func (serveCmd) Run(ctx context.Context, p *process) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	log, done, err := newLogger(c, p.stderr)
	if err != nil {
		return err
	}
	defer done()
	return serve(log.WithContext(ctx), c, extras{})
}

// extras is what tests add to the real wiring; the zero value adds nothing.
type extras struct {
	tools []*capability.Capability
	fault func(step string) error // see store.Config.Fault
	// bound is told the addresses that are listened on.
	bound func(appservice, admin net.Addr)
	lease time.Duration // see bridge.Config.LeaseTTL
}

// service is one running application service.
type service struct {
	cfg    *config.Config
	store  *store.Store
	client *bridge.Client
	gate   *gate.Gate
	bridge *bridge.Bridge
	intake *bridge.Intake
	health *health
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, c *config.Config, x extras) error {
	log := zerolog.Ctx(ctx)
	s := &service{cfg: c}
	if err := s.open(ctx, x); err != nil {
		return err
	}
	defer func() {
		if err := s.store.Close(); err != nil {
			log.Error().Err(err).Msg("Could not close the database")
		}
	}()
	if err := s.wire(x, log); err != nil {
		return err
	}
	s.warn(log)
	return s.run(ctx, x)
}

func storeConfig(c *config.Config) store.Config {
	return store.Config{Type: c.Database.Type, Path: c.Database.Path, URI: string(c.Database.URI)}
}

func (s *service) open(ctx context.Context, x extras) error {
	sc := storeConfig(s.cfg)
	sc.Log, sc.Fault = *zerolog.Ctx(ctx), x.fault
	sc.Wake = func(c queue.Class) {
		if s.bridge != nil {
			s.bridge.Wake(c)
		}
	}
	st, err := store.Open(ctx, sc)
	if err != nil {
		return withCode(exitDatabase, err)
	}
	s.store = st
	alone, err := st.Alone(ctx)
	if err == nil && alone {
		// Whoever held a lease is dead: take everything up at once.
		err = st.Rows().ReleaseAll(ctx)
	}
	if err != nil {
		return withCode(exitDatabase, errors.Join(err, st.Close()))
	}
	return nil
}

// wire builds everything and hands it down; nobody else builds collaborators.
func (s *service) wire(x extras, log *zerolog.Logger) error {
	c := s.cfg
	var err error
	if s.client, err = bridge.NewClient(c.Homeserver.Address, c.BotID(), string(c.AppService.ASToken), callLimit); err != nil {
		return err
	}
	tools := append(clock.Tools(nil), room.Tools(roomServer{bridge.Acts{Homeserver: s.client, Refused: room.ErrRefused}}, c.BotID())...)
	registry, err := capability.NewRegistry(append(tools, x.tools...)...)
	if err != nil {
		return err
	}
	expiry := c.Approvals.Expiry.After
	if c.Approvals.Expiry.Never {
		expiry = gate.Never
	}
	var g *gate.Gate
	g, err = gate.New(gate.Config{
		Registry: registry, Ledger: s.store.Ledger(), People: s.store, Contexts: bridge.Contexts{},
		Policies: []policy.Policy{bridge.Showable{}},
		Electors: bridge.Electors{
			Homeserver: s.client, Bot: c.BotID(), MinPower: c.Approvals.MinPower,
			Withdraw: func(ctx context.Context, approvalID, why string) error {
				_, err := g.Cancel(ctx, approvalID, capability.Actor{}, why)
				return err
			},
		},
		Timeout: c.Limits.ToolTimeout, ApprovalExpiry: expiry,
		// The ledger's audit rows are written with the steps they tell of.
		Audit: gate.Audit{LedgerOnly: true},
		Keys:  gate.Keys{Signing: keyState(c.Identity.KeyFile), Secrets: keyState(c.Identity.SecretsKeyFile)},
	})
	if err != nil {
		return err
	}
	s.gate = g
	keys, err := content.NewKeySet(c.Approvals.Approve, c.Approvals.Reject)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s.bridge, err = bridge.New(bridge.Config{
		Rows: s.store.Rows(), Homeserver: s.client, Gate: g, Commands: commands.New(g, c.Commands.Prefix),
		Bot: c.BotID(), Domain: c.Homeserver.Domain, Name: c.AppService.Bot.DisplayName,
		Owner: host + "/" + rand.Text(), Keys: keys, SeedYes: first(c.Approvals.Approve), SeedNo: first(c.Approvals.Reject),
		MinPower: c.Approvals.MinPower, EventAge: c.Limits.EventAge, LeaseTTL: x.lease,
	})
	if err != nil {
		return err
	}
	s.intake, err = bridge.NewIntake(bridge.IntakeConfig{
		Inbox: s.store.Rows(), HSToken: string(c.AppService.HSToken), Bot: c.BotID(),
		MaxBytes: c.Limits.TransactionBytes, Log: *log,
	})
	s.health = &health{store: s.store, client: s.client, bot: c.BotID()}
	return err
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// run listens, greets the homeserver and serves until ctx ends.
func (s *service) run(ctx context.Context, x extras) error {
	app, err := listen(ctx, s.cfg.AppService.Listen, s.cfg.Where("appservice.listen"))
	if err != nil {
		return err
	}
	admin, err := listen(ctx, s.cfg.Admin.Listen, s.cfg.Where("admin.listen"))
	if err != nil {
		return errors.Join(err, app.Close())
	}
	if x.bound != nil {
		x.bound(app.Addr(), admin.Addr())
	}
	log := zerolog.Ctx(ctx)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	servers := []*http.Server{newServer(s.intake.Handler()), newServer(s.health.handler())}
	var wg sync.WaitGroup
	for i, l := range []net.Listener{app, admin} {
		wg.Go(func() {
			if err := servers[i].Serve(l); !errors.Is(err, http.ErrServerClosed) {
				stop(fmt.Errorf("listener %s: %w", l.Addr(), err))
			}
		})
	}
	wg.Go(func() {
		if err := s.greet(ctx); err != nil && ctx.Err() == nil {
			stop(err)
		}
	})
	log.Info().Str("appservice", app.Addr().String()).Str("admin", admin.Addr().String()).
		Str("bot", s.cfg.BotID()).Str("version", version()).Msg("Listening")
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	bridged := make(chan struct{})
	go func() { defer close(bridged); s.bridge.Run(inner, drainFor) }()

	<-ctx.Done()
	log.Info().Msg("Stopping: no new events, finishing what is at hand")
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainFor)
	defer cancel()
	hangUp(down, log, servers)
	end()
	<-bridged
	wg.Wait()
	if err := s.gate.Drain(down); err != nil {
		log.Error().Err(err).Msg("Audit records were not delivered")
	}
	log.Info().Msg("Stopped")
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// hangUp takes no more requests and ends those at hand. Connections that were
// opened and never used would hold it up for five seconds, so it does not wait
// for them: what was not answered 200 comes again.
func hangUp(ctx context.Context, log *zerolog.Logger, servers []*http.Server) {
	ctx, cancel := context.WithTimeout(ctx, hangUpFor)
	defer cancel()
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() {
			if err := srv.Shutdown(ctx); err == nil {
				return
			}
			if err := srv.Close(); err != nil {
				log.Warn().Err(err).Msg("A listener did not end in time")
			}
		})
	}
	wg.Wait()
}

func listen(ctx context.Context, addr, where string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen (%s): %w", where, err)
	}
	return l, nil
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: 2 * time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// newLogger makes the log the configuration asks for; done closes it.
func newLogger(c *config.Config, stderr io.Writer) (log zerolog.Logger, done func(), err error) {
	level, err := zerolog.ParseLevel(c.Logging.Level)
	if err != nil {
		return log, nil, fmt.Errorf("%s: %w", c.Where("logging.level"), err)
	}
	w, done := stderr, func() {}
	if c.Logging.File != "" {
		f, err := os.OpenFile(filepath.Clean(c.Logging.File), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the operator's own path
		if err != nil {
			return log, nil, fmt.Errorf("%s: %w", c.Where("logging.file"), err)
		}
		w, done = f, func() { _ = f.Close() }
	}
	if c.Logging.Format == config.Pretty {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.RFC3339}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), done, nil
}

// keyState looks whether a key file is there.
func keyState(file string) gate.KeyState {
	if _, err := os.Stat(file); err != nil {
		return gate.KeyMissing
	}
	return gate.KeyPresent
}

// warn says at every start, whatever the level, what is configured in a way that
// people regret.
func (s *service) warn(log *zerolog.Logger) {
	for _, w := range s.gate.Warnings() {
		log.Log().Str("level", "warn").Str("warning", w).Str("remedy", "moothall init makes the key files that are missing").Msg("Check the configuration")
	}
}

// roomServer is what the room's tools need, over the bridge.
type roomServer struct{ bridge.Acts }

// Powers implements room.Homeserver.
func (r roomServer) Powers(ctx context.Context, roomID string, act room.Act, users ...string) (room.Powers, error) {
	what := "m.room.topic"
	switch act {
	case room.ActInvite:
		what = "invite"
	case room.ActKick:
		what = "kick"
	case room.ActTopic:
	}
	needed, of, member, err := r.Levels(ctx, roomID, what, users...)
	return room.Powers{Needed: needed, Of: of, Member: member}, err
}
