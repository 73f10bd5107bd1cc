package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sekali/internal/rawclient"
)

// comparedTool is one run of a tool against both brokers, whose outputs must be the same but for what two brokers cannot
// agree on: addresses, ids that they make up, and times.
type comparedTool struct {
	class string // below org.apache.kafka.tools
	args  string
	only  string // regular expression: only these lines; the broker of the other phases has other groups too
	fails bool   // it has to end with an error
}

const (
	groupTool  = "consumer.group.ConsumerGroupCommand"
	txnTool    = "TransactionsCommand"
	oldMinutes = "--max-transaction-timeout 15" // of a transaction that hangs; ours began long ago
)

// comparedRuns are the runs in their order; {B} stands for the address, {S} for the start of the transaction that hangs.
var comparedRuns = []comparedTool{
	{class: "FeatureCommand", args: "--bootstrap-server {B} describe", only: "transaction.version|group.version"},
	{class: "consumer.ConsoleConsumer", args: "--bootstrap-server {B} --topic tooled-in --group tooled-console --from-beginning " +
		"--max-messages 6 --timeout-ms 30000 --formatter-property print.offset=true --formatter-property print.partition=true " +
		"--command-property isolation.level=read_committed"},
	{class: groupTool, args: "--bootstrap-server {B} --list", only: "tooled"},
	{class: groupTool, args: "--bootstrap-server {B} --list --state --type", only: "tooled"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-console"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-console --state"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-console --members"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-live"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-live --members --verbose"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-live --state"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-new --members --verbose"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-new --offsets"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-none", fails: true},
	{class: groupTool, args: "--bootstrap-server {B} --reset-offsets --group tooled-console --topic tooled-in --to-earliest --dry-run"},
	{class: groupTool, args: "--bootstrap-server {B} --reset-offsets --group tooled-console --topic tooled-in:1 --shift-by -2 --execute"},
	{class: groupTool, args: "--bootstrap-server {B} --reset-offsets --group tooled-fresh --all-topics --to-latest --execute"},
	{class: groupTool, args: "--bootstrap-server {B} --reset-offsets --group tooled-fresh --topic tooled-in --to-latest --execute"},
	{class: groupTool, args: "--bootstrap-server {B} --reset-offsets --group tooled-live --topic tooled-in --to-earliest --execute",
		fails: true},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-console --offsets"},
	{class: groupTool, args: "--bootstrap-server {B} --delete-offsets --group tooled-console --topic tooled-in:0"},
	{class: groupTool, args: "--bootstrap-server {B} --describe --group tooled-console --offsets"},
	{class: groupTool, args: "--bootstrap-server {B} --delete --group tooled-live", fails: true},
	{class: groupTool, args: "--bootstrap-server {B} --delete --group tooled-console"},
	{class: groupTool, args: "--bootstrap-server {B} --delete --group tooled-console", fails: true},
	{class: txnTool, args: "--bootstrap-server {B} list", only: "tooled|TransactionalId"},
	{class: txnTool, args: "--bootstrap-server {B} list --transactional-id-pattern tooled-o.*"},
	{class: txnTool, args: "--bootstrap-server {B} describe --transactional-id tooled-open"},
	{class: txnTool, args: "--bootstrap-server {B} describe --transactional-id tooled-none", fails: true},
	{class: txnTool, args: "--bootstrap-server {B} describe-producers --topic tooled-out --partition 0"},
	{class: txnTool, args: "--bootstrap-server {B} find-hanging --broker-id 1 " + oldMinutes, only: "tooled|Topic"},
	{class: txnTool, args: "--bootstrap-server {B} find-hanging --topic tooled-out " + oldMinutes},
	{class: txnTool, args: "--bootstrap-server {B} abort --topic tooled-out --partition 1 --start-offset {S}"},
	{class: txnTool, args: "--bootstrap-server {B} find-hanging --topic tooled-out " + oldMinutes},
	{class: txnTool, args: "--bootstrap-server {B} abort --topic tooled-out --partition 1 --start-offset {S}", fails: true},
	{class: txnTool, args: "--bootstrap-server {B} forceTerminateTransaction --transactionalId tooled-open"},
	{class: txnTool, args: "--bootstrap-server {B} describe --transactional-id tooled-open"},
	{class: "consumer.ConsoleConsumer", args: "--bootstrap-server {B} --topic tooled-out --partition 0 --offset earliest " +
		"--max-messages 2 --timeout-ms 30000 --command-property isolation.level=read_committed " +
		"--formatter-property print.offset=true"},
	{class: "VerifiableProducer", args: "--bootstrap-server {B} --topic tooled-in --max-messages 20 --acks -1 --repeating-keys 3 " +
		"--message-create-time 1760000000000"},
}

// toolSide is one broker with what its runs need.
type toolSide struct {
	*side
	live    []*kgo.Client
	hanging int64 // start offset
}

// prepare makes what the tools are to find: a topic with records, members of both kinds of groups, an open transaction,
// a decided one, and one that hangs: the broker must let a producer write that has no transaction.
func prepare(addr string) (t *toolSide, err error) {
	s, err := newSide(addr, "tools")
	if err != nil {
		return nil, err
	}
	t = &toolSide{side: s}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(broken)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	s.coordinated()
	s.topic("tooled-in", 2)
	s.topic("tooled-out", 2, "segment.ms", longest)
	for p := range int32(2) {
		s.must(produced(ask[*kmsg.ProduceResponse](s, rawclient.Produce(9, "tooled-in", p, plain(3).bytes()))))
	}
	for _, name := range []string{"tooled-done", "tooled-open", "tooled-hanging"} {
		a := &actor{s: s, row: name, id: name, topic: "tooled-out"}
		a.initAs(4, -1, -1, 900_000)
		a.begin(int32(len(name)/14), 0)
		switch name {
		case "tooled-done":
			a.write(0, 1, 1).end(true)
		case "tooled-hanging":
			a.end(true).write(1, 1, 1) // nobody has told the coordinator
			t.hanging = 2
		}
	}
	for _, protocol := range []string{"live", "new"} {
		opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.ClientID(protocol), kgo.ConsumerGroup("tooled-" + protocol),
			kgo.ConsumeTopics("tooled-in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
			kgo.Balancers(kgo.RangeBalancer())}
		if protocol == "new" {
			opts = append(opts, kgo.ServerSideBalancer())
		}
		cl, err := kgo.NewClient(opts...)
		s.must(err)
		t.live = append(t.live, cl)
		got := 0
		for began := time.Now(); got < 6 && time.Since(began) < 20*time.Second; {
			wait, cancel := context.WithTimeout(context.Background(), time.Second)
			got += cl.PollFetches(wait).NumRecords()
			cancel()
		}
		s.must(cl.CommitUncommittedOffsets(context.Background()))
	}
	return t, nil
}

func (t *toolSide) end() {
	for _, cl := range t.live {
		cl.Close()
	}
	t.close()
}

var (
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	stamps    = regexp.MustCompile(`\b1[789]\d{11}\b`) // ms of the clock
	memberIDs = regexp.MustCompile(`[\w+/-]{22}==`)    // ids of members of the new protocol
	epochs4   = regexp.MustCompile(`Epoch: \d+$`)      // of the finalized features
	rates     = regexp.MustCompile(`"avg_throughput":[\d.]+`)
	columns   = []string{"ProducerId", "CoordinatorEpoch", "LatestCoordinatorEpoch", "TransactionDurationMs",
		"Duration(min)", "CURRENT-EPOCH", "TARGET-EPOCH"} // of which only that there is a value is looked at
)

// plainly is an output without what differs between two brokers by nature, its lines in order of the alphabet.
func (t *toolSide) plainly(out, only string) []string {
	var lines []string
	var blank []int // the columns to blank, once their head has been seen
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "at ") { // where in the tool
			continue
		}
		if only != "" && !regexp.MustCompile(only).MatchString(line) {
			continue
		}
		line = strings.ReplaceAll(line, t.addr, "BROKER")
		line = epochs4.ReplaceAllString(memberIDs.ReplaceAllString(uuids.ReplaceAllString(line, "UUID"), "UUID"), "Epoch: N")
		line = rates.ReplaceAllString(line, "RATE")
		line = stamps.ReplaceAllStringFunc(line, func(ms string) string {
			if strings.HasPrefix(ms, "1760") { // the time of our records
				return ms
			}
			return "NOW"
		})
		fields := strings.Fields(line)
		for i, f := range fields {
			if slices.Contains(columns, f) {
				blank = append(blank, i)
			}
		}
		for _, i := range blank {
			if i < len(fields) && strings.Trim(fields[i], "0123456789") == "" {
				fields[i] = "N"
			}
		}
		if len(fields) > 0 {
			lines = append(lines, strings.Join(fields, " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// compareTools runs the tools against both brokers and says where their outputs differ.
func (j java) compareTools(ctx context.Context, kafka, sekali string) error {
	var sides [2]*toolSide
	for i, addr := range []string{kafka, sekali} {
		var err error
		if sides[i], err = prepare(addr); err != nil {
			return fmt.Errorf("prepare %s: %w", addr, err)
		}
		defer sides[i].end()
	}
	wrong := 0
	for _, run := range comparedRuns {
		began := time.Now()
		var texts [2][]string
		var errs [2]error
		var both sync.WaitGroup
		for i, t := range sides {
			both.Go(func() { texts[i], errs[i] = j.compared(ctx, t, run) })
		}
		both.Wait()
		if err := errors.Join(errs[0], errs[1]); err != nil {
			return err
		}
		fmt.Printf("  $ %s %s   (%.1f s)\n", scriptNames[run.class], run.args, time.Since(began).Seconds())
		show(strings.Join(texts[1], "\n"))
		if !slices.Equal(texts[0], texts[1]) {
			wrong++
			fmt.Println("      differs; only Kafka shows, and only sekali:")
			for i := range texts {
				show(strings.Join(slices.DeleteFunc(slices.Clone(texts[i]), func(line string) bool {
					return slices.Contains(texts[1-i], line)
				}), "\n"))
			}
		}
	}
	fmt.Printf("   %d runs, %d with another output than Kafka's\n", len(comparedRuns), wrong)
	if wrong > 0 {
		return fmt.Errorf("%d tools show something else than with Apache Kafka", wrong)
	}
	return nil
}

// compared is one run against one broker.
func (j java) compared(ctx context.Context, t *toolSide, run comparedTool) ([]string, error) {
	args := strings.NewReplacer("{B}", t.addr, "{S}", fmt.Sprint(t.hanging)).Replace(run.args)
	out, err := j.run(ctx, "", "org.apache.kafka.tools."+run.class, strings.Fields(args)...)
	if (err != nil) != run.fails && !complains(out, run.fails) {
		return nil, fmt.Errorf("%s %s: failed %v, want %v: %s: %w", scriptNames[run.class], args, err != nil, run.fails, out, err)
	}
	return t.plainly(out, run.only), nil
}

// letHanging turns off that a broker asks the coordinator before it takes a transactional batch.
func letHanging(addr string) error {
	c, err := rawclient.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.Version = 1
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	v := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	v.Name, v.Value = "transaction.partition.verification.enable", kmsg.StringPtr("false")
	x.Configs = append(x.Configs, v)
	r.Resources = append(r.Resources, x)
	resp, err := c.Call(r)
	if err != nil {
		return err
	}
	if code := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
		return fmt.Errorf("turn verification off: code %d", code)
	}
	return nil
}
