package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// securedSettings make a daemon that lets in whom it knows. Its listener has the name that startDaemon gives it, and
// another protocol.
var securedSettings = []string{"listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", "authorizer.class.name=acl",
	"super.users=User:root"}

// securedRuns are what an administrator does with Kafka's tools: from a directory in which only root is known to a user
// who may do what the rules say, and is turned away when the rules and then the password are gone. {R}, {A} and {W} are
// the files of root, of alice, and of alice with a wrong password.
func securedRuns() []tool {
	const root, alice = "--bootstrap-server {B} --command-config {R} ", "--bootstrap-server {B} --command-config {A} "
	const user = root + "--entity-type users --entity-name alice --alter "
	const consumer = "--allow-principal User:alice --consumer --topic guard --group readers --resource-pattern-type prefixed"
	return []tool{
		{class: "ConfigCommand", args: user + "--add-config SCRAM-SHA-256=[iterations=8192,password=pencil]",
			want: []string{`^Completed updating config for user alice\.$`}},
		{class: "ConfigCommand", args: root + "--entity-type users --describe", want: []string{
			`^SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192$`}},
		{class: "TopicCommand", args: root + "--create --topic guarded --partitions 1",
			want: []string{`^Created topic guarded\.$`}},
		{class: "TopicCommand", args: "--bootstrap-server {B} --command-config {W} --list", fails: true,
			want: []string{`Authentication failed: invalid credentials`}},
		{class: "AclCommand", args: alice + "--list", fails: true, want: []string{`ClusterAuthorizationException`}},
		// It ends with status 0 and only logs why: what tells is that nothing is there.
		{class: "ConsoleProducer", args: alice + "--topic guarded", input: "early\n"},
		{class: "GetOffsetShell", args: root + "--topic guarded --time latest", want: []string{`^guarded:0:0$`}},
		{class: "AclCommand", args: root + "--add --allow-principal User:alice --producer --topic guarded",
			want: []string{`principal=User:alice, host=\*, operation=WRITE, permissionType=ALLOW`}},
		{class: "AclCommand", args: root + "--add " + consumer, want: []string{`operation=READ, permissionType=ALLOW`}},
		{class: "AclCommand", args: root + "--list --principal User:alice", want: []string{
			`ResourcePattern\(resourceType=TOPIC, name=guarded, patternType=LITERAL\)`,
			`ResourcePattern\(resourceType=TOPIC, name=guard, patternType=PREFIXED\)`,
			`ResourcePattern\(resourceType=GROUP, name=readers, patternType=PREFIXED\)`}},
		{class: "ConsoleProducer", args: alice + "--topic guarded", input: "late\n"},
		{class: "consumer.ConsoleConsumer", args: alice + "--topic guarded --group readers --from-beginning " +
			"--max-messages 1 --timeout-ms 30000", want: []string{`^late$`}},
		{class: "AclCommand", args: root + "--remove --force " + consumer},
		{class: groupTool, args: alice + "--describe --group readers", fails: true,
			want: []string{`GroupAuthorizationException`}},
		{class: "ConfigCommand", args: user + "--delete-config SCRAM-SHA-256",
			want: []string{`^Completed updating config for user alice\.$`}},
		{class: "TopicCommand", args: alice + "--list", fails: true,
			want: []string{`Authentication failed: invalid credentials`}},
	}
}

// securedTools runs them against a daemon of their own, whose first user is made while it is down.
func (o *options) securedTools(ctx context.Context, j java) error {
	const name = "secured-data"
	first := exec.CommandContext(ctx, o.binary, "user", "set", "root", "--data", filepath.Join(o.dir, name))
	first.Stdin = strings.NewReader("rootpw\n")
	if out, err := first.CombinedOutput(); err != nil {
		return fmt.Errorf("first user: %w: %s", err, out)
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	settings := append(groupSettings[:len(groupSettings):len(groupSettings)], securedSettings...)
	sekali, err := startDaemon(o.binary, o.dir, name, ports[0], settings...)
	if err != nil {
		return err
	}
	defer sekali.kill()
	names := []string{"{B}", sekali.addr}
	for _, who := range [][3]string{{"{R}", "root", "rootpw"}, {"{A}", "alice", "pencil"}, {"{W}", "alice", "pencils"}} {
		path := filepath.Join(o.dir, who[1]+"-"+who[2]+".properties")
		text := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=" +
			"org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + who[1] + "\" password=\"" +
			who[2] + "\";\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		names = append(names, who[0], path)
	}
	if err := j.runTools(ctx, securedRuns(), names...); err != nil {
		return err
	}
	return sekali.stop()
}
