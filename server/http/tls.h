/* server/http/tls.h: the certificate that the server shows, and its key, from files that can be
 * read again. The only door to GnuTLS, which libmicrohttpd speaks TLS with. */
#pragma once

#include "config/base/base.h"

struct tls;

/* Checks that the two belong together. */
enum status tls_open(struct tls **out, const char *certificate, const char *key, struct error *e);
void tls_close(struct tls *tls); /* no connection is open any more */
/* Connections that come from here on get what the files hold now; others keep what they have. After
 * an error everything is as before. */
enum status tls_reload(struct tls *tls, struct error *e);
/* Words for the log: whom the certificate is for, and until when. */
void tls_describe(struct tls *tls, char *text, size_t size);

/* For the HTTP library. */

/* Protocols and ciphers: TLS 1.2 and 1.3. */
extern const char tls_priorities[];
/* Its certificate callback, in the form gnutls_certificate_retrieve_function3; the server's one
 * `struct tls` is found through tls_use. */
void *tls_callback(void);
void tls_use(struct tls *tls);
/* Sends bytes within the session, on the thread that the library serves it by. */
void tls_send(void *session, const char *bytes, size_t size);
