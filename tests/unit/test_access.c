/* tests/unit/test_access.c: files of keys, limits of keys, networks, and shares of a queue. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after those */
#include <cmocka.h>

#include "server/access/hosts.h"
#include "server/access/keyring.h"
#include "server/api/core/request_log.h"
#include "server/threads/client_counts.h"

#define HASH "\"sha256\": \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\""
#define HASH2 "\"sha256\": \"ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\""

static enum status parse(struct key_list *out, const char *text, struct error *e) {
    return key_list_parse(out, (struct text_span){text, strlen(text)}, "keys", e);
}

static void test_a_file_of_keys(void **state) {
    struct key_list list;
    struct error e;
    (void)state;
    assert_int_equal(
        parse(&list,
              "# comment\n\r\n{\"name\": \"a\", " HASH ", \"concurrent\": 2}\n \t# more\n"
              "{\"name\": \"b\", " HASH2
              ", \"operations\": true, \"tokens_per_day\": 1000000000000}",
              &e),
        STATUS_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.items[0]->name, "a");
    assert_int_equal(list.items[0]->limits.concurrent, 2);
    assert_int_equal(list.items[0]->hash[31], 31);
    assert_false(list.items[0]->operations);
    assert_true(list.items[1]->operations);
    assert_int_equal(list.items[1]->limits.tokens_per_day, 1000000000000);
    key_list_free(&list);
}

static void test_wrong_files(void **state) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "has no key"},
        {"# nothing\n", "has no key"},
        {"{\"name\": \"a\"}", "keys:1: "},
        {"\n[1]", "keys:2"},
        {"{\"name\": \"a\", \"sha256\": \"00\"}", "64 hexadecimal digits"},
        {"{\"name\": \"a b\", " HASH "}", "without blanks"},
        {"{\"name\": \"\", " HASH "}", "1 to 64 bytes"},
        {"{\"name\": \"a\", " HASH ", \"concurrent\": -1}", "concurrent"},
        {"{\"name\": \"a\", " HASH ", \"limit\": 1}", "limit"},
        {"{\"name\": \"a\", " HASH "}\n{\"name\": \"a\", " HASH2 "}",
         "keys:2: another key is called a"},
        {"{\"name\": \"a\", " HASH "}\n{\"name\": \"b\", " HASH "}", "keys:2: b is the same key"},
        {"{\"name\": \"a\", \"key\": \"hush-hush\", \"sha256\": \"hush-hush\"}", "keys:1"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct key_list list;
        struct error e = {0};
        assert_int_not_equal(parse(&list, cases[i].text, &e), STATUS_OK);
        if (strstr(e.text, cases[i].words) == NULL) fail_msg("%s: %s", cases[i].text, e.text);
        assert_null(strstr(e.text, "hush"));
        assert_int_equal(list.n, 0);
    }
}

static void test_a_hash_is_that_of_the_standard(void **state) {
    static const uint8_t abc[4] = {0xba, 0x78, 0x16, 0xbf}; /* FIPS 180-4, appendix B.1 */
    uint8_t hash[KEY_HASH_BYTES], other[KEY_HASH_BYTES];
    (void)state;
    key_hash((struct text_span){"abc", 3}, hash);
    assert_memory_equal(hash, abc, sizeof abc);
    memcpy(other, hash, sizeof hash);
    assert_true(key_hash_is(hash, other));
    other[31] ^= 1;
    assert_false(key_hash_is(hash, other));
}

static void test_limits(void **state) {
    struct key *k = key_open();
    struct key_refusal r;
    (void)state;
    k->limits = (struct key_limits){.concurrent = 2};
    assert_true(key_enter(k, &r));
    assert_true(key_enter(k, &r));
    assert_false(key_enter(k, &r));
    assert_string_equal(r.field, "concurrent");
    key_leave(k);
    assert_true(key_enter(k, &r));

    k->limits = (struct key_limits){.requests_per_minute = 6};
    for (int i = 0; i < 6; i++) assert_true(key_enter(k, &r));
    assert_false(key_enter(k, &r));
    assert_string_equal(r.field, "requests_per_minute");
    assert_in_range(r.retry_after, 9, 10);

    k->limits = (struct key_limits){.tokens_per_day = 86400};
    assert_true(key_enter(k, &r));
    key_charge(k, 86400 + 99);
    assert_false(key_enter(k, &r));
    assert_string_equal(r.field, "tokens_per_day");
    assert_in_range(r.retry_after, 99, 100);
    k->limits = (struct key_limits){0};
    assert_true(key_enter(k, &r));

    struct key_counts counts = key_counts(k);
    assert_int_equal(counts.requests, 11);
    assert_int_equal(counts.refused, 3);
    assert_int_equal(counts.tokens, 86499);
    key_release(k);
}

static void test_usage_is_shared(void **state) {
    struct key *before = key_open(), *after = key_open();
    (void)state;
    key_charge(before, 5);
    key_share_usage(after, before);
    key_release(before);
    assert_int_equal(key_counts(after).tokens, 5);
    key_release(after);
}

static bool network_takes(const char *network, const char *text) {
    struct network n;
    struct net_address a;
    struct error e;
    assert_int_equal(network_parse(&n, network, &e), STATUS_OK);
    assert_true(address_parse(&a, text));
    return network_has(&n, &a);
}

static void test_networks(void **state) {
    struct network n;
    struct net_address a;
    struct error e;
    (void)state;
    assert_true(network_takes("10.0.0.0/8", "10.255.1.2"));
    assert_false(network_takes("10.0.0.0/8", "11.0.0.0"));
    assert_true(network_takes("192.168.1.7", "192.168.1.7"));
    assert_false(network_takes("192.168.1.7", "192.168.1.6"));
    assert_true(network_takes("10.1.2.3/31", "10.1.2.2"));
    assert_true(network_takes("0.0.0.0/0", "1.2.3.4"));
    assert_false(network_takes("0.0.0.0/0", "2001:db8::1"));
    assert_true(network_takes("::/0", "1.2.3.4"));
    assert_true(network_takes("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(network_takes("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(network_takes("::ffff:10.0.0.0/104", "10.9.9.9"));
    static const char *const wrong[] = {
        "",
        "10.0.0/8",
        "10.0.0.0/33",
        "::1/129",
        "10.0.0.0/",
        "10.0.0.0/x",
        "a/8",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "1111111111111111111111111111111111111111111111111111111111111111"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(network_parse(&n, wrong[i], &e), STATUS_INVALID);
    assert_true(address_parse(&a, "127.1.2.3") && address_is_local(&a));
    assert_true(address_parse(&a, "::1") && address_is_local(&a));
    assert_true(address_parse(&a, "128.0.0.1") && !address_is_local(&a));
    char text[ADDRESS_TEXT_BYTES];
    address_print(&a, text);
    assert_string_equal(text, "128.0.0.1");
}

static void test_shares(void **state) {
    struct client_counts s = {0};
    (void)state;
    for (uint64_t i = 0; i < 100; i++) client_counts_add(&s, i % 10, 1);
    assert_int_equal(s.n, 10);
    assert_int_equal(client_counts_of(&s, 3), 10);
    for (int i = 0; i < 10; i++) client_counts_take(&s, 3, 1);
    assert_int_equal(client_counts_of(&s, 3), 0);
    assert_int_equal(s.n, 9);
    assert_int_equal(client_counts_of(&s, 9), 10);
    client_counts_free(&s);
}

static void test_work_is_counted(void **state) {
    struct principal p = principal_open(7), held;
    (void)state;
    p.key = key_open();
    held = principal_hold(p);
    principal_charge(&held, 3, 4);
    principal_release(&held);
    assert_int_equal(atomic_load(&p.work->tokens_read), 3);
    assert_int_equal(atomic_load(&p.work->tokens_written), 4);
    assert_int_equal(key_counts(p.key).tokens, 7);
    principal_release(&p);
}

static void test_traces(void **state) {
    struct trace_context t;
    (void)state;
    assert_true(trace_parse(&t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    assert_string_equal(t.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_string_equal(t.parent_id, "00f067aa0ba902b7");
    assert_true(t.sampled);
    assert_true(trace_parse(&t, "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe-more"));
    assert_false(t.sampled);
    static const char *const wrong[] = {
        "",
        "00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more"};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) assert_false(trace_parse(&t, wrong[i]));
}

/* The edges of each range of addresses that are nobody's or somebody's alone, and the public
 * addresses beside them. */
static void test_public_addresses(void **state) {
    static const char *const kept[] = {"0.0.0.0",
                                       "0.255.255.255",
                                       "10.0.0.0",
                                       "10.255.255.255",
                                       "100.64.0.0",
                                       "100.127.255.255",
                                       "127.0.0.1",
                                       "127.255.255.255",
                                       "169.254.0.0",
                                       "169.254.169.254",
                                       "172.16.0.0",
                                       "172.31.255.255",
                                       "192.0.0.0",
                                       "192.0.2.9",
                                       "192.31.196.1",
                                       "192.52.193.1",
                                       "192.88.99.1",
                                       "192.168.0.0",
                                       "192.168.255.255",
                                       "192.175.48.1",
                                       "198.18.0.0",
                                       "198.19.255.255",
                                       "198.51.100.7",
                                       "203.0.113.7",
                                       "224.0.0.1",
                                       "239.255.255.255",
                                       "240.0.0.1",
                                       "255.255.255.255",
                                       "::",
                                       "::1",
                                       "::7f00:1",
                                       "::8.8.8.8",
                                       "::ffff:10.0.0.1",
                                       "::ffff:127.0.0.1",
                                       "::ffff:192.168.1.1",
                                       "::ffff:169.254.169.254",
                                       "::ffff:0:8.8.8.8",
                                       "64:ff9b::10.0.0.1",
                                       "64:ff9b::7f00:1",
                                       "64:ff9b:1::8.8.8.8",
                                       "100::1",
                                       "2001::1",
                                       "2001:1ff:ffff::1",
                                       "2001:db8::1",
                                       "2002::1",
                                       "2002:7f00:1::1",
                                       "2002:808:808::1",
                                       "2620:4f:8000::1",
                                       "3fff::1",
                                       "3fff:fff:ffff::1",
                                       "4000::1",
                                       "5f00::1",
                                       "fc00::1",
                                       "fdff:ffff::1",
                                       "fe80::1",
                                       "febf::1",
                                       "fec0::1",
                                       "ff02::1",
                                       "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"};
    static const char *const open[] = {
        "1.1.1.1",        "9.255.255.255",    "11.0.0.0",        "100.63.255.255",
        "100.128.0.0",    "126.255.255.255",  "128.0.0.0",       "169.253.255.255",
        "169.255.0.0",    "172.15.255.255",   "172.32.0.0",      "192.0.1.1",
        "192.0.3.0",      "192.167.255.255",  "192.169.0.0",     "198.17.255.255",
        "198.20.0.0",     "198.51.99.1",      "203.0.114.0",     "223.255.255.255",
        "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2001:200::1",     "2001:4860:4860::8888",
        "2001:db9::1",    "2003::1",          "2620:4f:7fff::1", "2a00:1450::1",
        "3ffe::1",        "3fff:1000::1"};
    struct net_address a;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kept); i++) {
        assert_true(address_parse(&a, kept[i]));
        if (address_is_public(&a)) fail_msg("%s is no public address", kept[i]);
    }
    for (size_t i = 0; i < ARRAY_COUNT(open); i++) {
        assert_true(address_parse(&a, open[i]));
        if (!address_is_public(&a)) fail_msg("%s is a public address", open[i]);
    }
}

struct host_case {
    const char *rule, *host;
    int port;
    bool usual, allowed;
};

static void test_hosts(void **state) {
    static const struct host_case cases[] = {
        {"example.org", "example.org", 80, true, true},
        {"Example.ORG", "eXample.org", 443, true, true},
        {"example.org", "example.org", 8080, false, false},
        {"example.org:8080", "example.org", 8080, false, true},
        {"example.org:8080", "example.org", 80, true, false},
        {"example.org", "www.example.org", 80, true, false},
        {"example.org", "example.org.", 80, true, false},
        {"example.org", "example.orgs", 80, true, false},
        {"example.org", "badexample.org", 80, true, false},
        {"*.example.org", "www.example.org", 80, true, true},
        {"*.example.org", "a.b.example.org", 80, true, true},
        {"*.example.org", "example.org", 80, true, false},
        {"*.example.org", ".example.org", 80, true, false},
        {"*.example.org", "badexample.org", 80, true, false},
        {"*.example.org", "www.example.org.evil.net", 80, true, false},
        {"192.0.2.7", "192.0.2.7", 80, true, true},
        {"192.0.2.7", "192.0.2.8", 80, true, false},
        {"*.2.7", "192.0.2.7", 80, true, false},
        {"192.0.2.7:81", "192.0.2.7", 81, false, true},
        {"192.0.2.7", "[::ffff:192.0.2.7]", 80, true, true},
        {"[2001:db8::7]:81", "[2001:db8:0::7]", 81, false, true},
        {"2001:db8::7", "[2001:db8::7]", 80, true, true},
        {"[2001:db8::7]", "[2001:db8::8]", 80, true, false},
        {"localhost", "127.0.0.1", 80, true, false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct host_case *c = &cases[i];
        char *texts[] = {(char *)(uintptr_t)c->rule};
        struct host_rules list;
        struct error e;
        if (host_rules_open(&list, texts, 1, &e)) fail_msg("%s", e.text);
        if ((host_rules_find(&list, c->host, c->port, c->usual) != NULL) != c->allowed)
            fail_msg("%s, %s", c->rule, c->host);
        host_rules_free(&list);
    }
}

/* A name connects to public addresses, an address to itself, whatever it is. */
static void test_connections_of_hosts(void **state) {
    struct host_rule name, address;
    struct net_address loopback, public;
    struct error e;
    (void)state;
    assert_int_equal(host_rule_parse(&name, "localhost:80", &e), STATUS_OK);
    assert_int_equal(host_rule_parse(&address, "127.0.0.1:80", &e), STATUS_OK);
    assert_true(address_parse(&loopback, "::ffff:127.0.0.1") && address_parse(&public, "1.1.1.1"));
    assert_false(host_rule_connects(&name, &loopback));
    assert_true(host_rule_connects(&name, &public));
    assert_true(host_rule_connects(&address, &loopback));
    assert_false(host_rule_connects(&address, &public));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_public_addresses),
                                       cmocka_unit_test(test_hosts),
                                       cmocka_unit_test(test_connections_of_hosts),
                                       cmocka_unit_test(test_a_file_of_keys),
                                       cmocka_unit_test(test_wrong_files),
                                       cmocka_unit_test(test_a_hash_is_that_of_the_standard),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_usage_is_shared),
                                       cmocka_unit_test(test_networks),
                                       cmocka_unit_test(test_shares),
                                       cmocka_unit_test(test_work_is_counted),
                                       cmocka_unit_test(test_traces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
