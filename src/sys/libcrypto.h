// The part of OpenSSL's libcrypto that is used, loaded when first needed. What it declares is the
// same in OpenSSL 1.1 and 3, whose security updates come with the system's.
#pragma once

#include <unisono/result.h>

// clang-format off
// name, symbol, result, parameters; a context and a cipher are opaque.
#define UNISONO_LIBCRYPTO_FUNCTIONS(X)                                                            \
  X(new_context, "EVP_CIPHER_CTX_new", void*, ())                                                 \
  X(free_context, "EVP_CIPHER_CTX_free", void, (void*))                                           \
  X(aes_256_gcm, "EVP_aes_256_gcm", const void*, ())                                              \
  X(init, "EVP_CipherInit_ex", int,                                                               \
    (void*, const void*, void*, const unsigned char*, const unsigned char*, int))                 \
  X(update, "EVP_CipherUpdate", int, (void*, unsigned char*, int*, const unsigned char*, int))    \
  X(finish, "EVP_CipherFinal_ex", int, (void*, unsigned char*, int*))                             \
  X(control, "EVP_CIPHER_CTX_ctrl", int, (void*, int, int, void*))
// clang-format on

namespace unisono::sys {

struct Libcrypto {
  // A type and a member cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)
#define UNISONO_DECLARE(name, symbol, result, parameters) result(*name) parameters = nullptr;
  UNISONO_LIBCRYPTO_FUNCTIONS(UNISONO_DECLARE)
#undef UNISONO_DECLARE
  // NOLINTEND(bugprone-macro-parentheses)
};

// An environment error where there is none. Any thread.
Result<const Libcrypto*> libcrypto();

}  // namespace unisono::sys
