/* server/http/tls.c: the server's certificate. See tls.h.
 *
 * The files' bytes are kept, and parsed again for each handshake: GnuTLS frees what it was handed
 * when the connection ends, so that a certificate that was replaced needs no count of those who
 * still use it. */
#include "server/http/tls.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/base/buffer.h"

enum { FILE_BYTES = 1 << 20, CHAIN_MOST = 16 };

/* With ephemeral keys (a certificate's key that is stolen later opens nothing that was recorded)
 * and ciphers that seal what they encrypt. */
const char tls_priorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-CIPHER-ALL:+AES-256-GCM:"
    "+CHACHA20-POLY1305:+AES-128-GCM:-MAC-ALL:+AEAD:%SERVER_PRECEDENCE";

struct tls {
    char *certificate_path, *key_path;
    pthread_mutex_t lock; /* guards the next two */
    struct buffer certificate, key;
};

/* The library hands no context to the callback. */
static struct tls *in_use;

static gnutls_datum_t datum_of(const struct buffer *buffer) {
    return (gnutls_datum_t){(unsigned char *)buffer->data, (unsigned)buffer->size};
}

static void secret_free(struct buffer *buffer) {
    if (buffer->data) gnutls_memset(buffer->data, 0, buffer->size);
    buffer_free(buffer);
}

/* Files. */

static enum status pair_check(const struct tls *tls, const struct buffer *certificate,
                              const struct buffer *key, struct error *e) {
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t first = datum_of(certificate), second = datum_of(key);
    int failed = gnutls_certificate_allocate_credentials(&credentials);
    if (failed == 0) {
        failed = gnutls_certificate_set_x509_key_mem2(credentials, &first, &second,
                                                      GNUTLS_X509_FMT_PEM, NULL, 0);
        gnutls_certificate_free_credentials(credentials);
    }
    if (failed >= 0) return STATUS_OK;
    return error_set(e, STATUS_INVALID, "%s and %s: %s", tls->certificate_path, tls->key_path,
                     gnutls_strerror(failed));
}

enum status tls_reload(struct tls *tls, struct error *e) {
    struct buffer certificate = {0}, key = {0};
    enum status status = file_read(tls->certificate_path, FILE_BYTES, &certificate, e);
    if (status == STATUS_OK) status = file_read(tls->key_path, FILE_BYTES, &key, e);
    if (status == STATUS_OK) status = pair_check(tls, &certificate, &key, e);
    if (status == STATUS_OK) {
        struct buffer old_certificate = tls->certificate, old_key = tls->key;
        pthread_mutex_lock(&tls->lock);
        tls->certificate = certificate;
        tls->key = key;
        pthread_mutex_unlock(&tls->lock);
        certificate = old_certificate;
        key = old_key;
    }
    buffer_free(&certificate);
    secret_free(&key);
    return status ? error_prefix(e, "server.tls_certificate, server.tls_key") : STATUS_OK;
}

enum status tls_open(struct tls **out, const char *certificate, const char *key, struct error *e) {
    struct tls *tls = xcalloc(1, sizeof *tls);
    pthread_mutex_init(&tls->lock, NULL);
    tls->certificate_path = xstrdup(certificate);
    tls->key_path = xstrdup(key);
    if (tls_reload(tls, e)) {
        tls_close(tls);
        return e->status;
    }
    *out = tls;
    return STATUS_OK;
}

void tls_close(struct tls *tls) {
    if (tls == NULL) return;
    if (in_use == tls) in_use = NULL;
    pthread_mutex_destroy(&tls->lock);
    buffer_free(&tls->certificate);
    secret_free(&tls->key);
    free(tls->certificate_path);
    free(tls->key_path);
    free(tls);
}

void tls_describe(struct tls *tls, char *text, size_t size) {
    gnutls_x509_crt_t certificate;
    gnutls_datum_t bytes = datum_of(&tls->certificate);
    char name[256] = "?", until[32] = "?";
    size_t name_size = sizeof name;
    if (gnutls_x509_crt_init(&certificate) < 0) return;
    if (gnutls_x509_crt_import(certificate, &bytes, GNUTLS_X509_FMT_PEM) >= 0) {
        struct tm utc;
        time_t end = gnutls_x509_crt_get_expiration_time(certificate);
        if (gnutls_x509_crt_get_dn(certificate, name, &name_size) < 0)
            snprintf(name, sizeof name, "?");
        if (gmtime_r(&end, &utc)) strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    gnutls_x509_crt_deinit(certificate);
    snprintf(text, size, "certificate of %s, until %s", name, until);
}

/* Handshakes. */

/* Makes what GnuTLS will free; false: nothing was made. */
static bool pair_make(struct tls *tls, gnutls_pcert_st *chain, unsigned *n, gnutls_privkey_t *key) {
    gnutls_datum_t certificate = datum_of(&tls->certificate), secret = datum_of(&tls->key);
    if (gnutls_privkey_init(key) < 0) return false;
    if (gnutls_privkey_import_x509_raw(*key, &secret, GNUTLS_X509_FMT_PEM, NULL, 0) >= 0 &&
        gnutls_pcert_list_import_x509_raw(chain, n, &certificate, GNUTLS_X509_FMT_PEM, 0) >= 0)
        return true;
    gnutls_privkey_deinit(*key);
    return false;
}

static gnutls_certificate_retrieve_function3 retrieve;

static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *asked,
                    gnutls_pcert_st **chain, unsigned *n, gnutls_ocsp_data_st **ocsp,
                    unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags) {
    struct tls *tls = in_use;
    gnutls_pcert_st *list = gnutls_malloc(CHAIN_MOST * sizeof *list);
    (void)session, (void)asked;
    if (tls == NULL || list == NULL) return -1;
    *n = CHAIN_MOST;
    pthread_mutex_lock(&tls->lock);
    bool made = pair_make(tls, list, n, key);
    pthread_mutex_unlock(&tls->lock);
    if (!made) {
        gnutls_free(list);
        return -1;
    }
    *chain = list;
    *ocsp = NULL;
    *n_ocsp = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

void *tls_callback(void) { return (void *)(uintptr_t)retrieve; }

void tls_use(struct tls *tls) { in_use = tls; }

void tls_send(void *session, const char *bytes, size_t size) {
    ssize_t sent = gnutls_record_send(session, bytes, size);
    (void)sent; /* a client that reads nothing is not waited for */
}
